package layers_test

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/stretchr/testify/require"

	"github.com/gorxe/gorxe/bth"
	"github.com/gorxe/gorxe/layers"
)

// place is where a field lies: the octet, the bit in it from the top, and the
// width in bits.
type place struct{ octet, bit, width int }

// layouts are those of the kernel (include/rdma/ibta_vol1_c12.h, whose offsets
// are without the MAD header, and ib_mad.h), for the messages that tshark does
// not know and for those it does.
var layouts = []struct {
	make func() gopacket.SerializableLayer
	at   map[string]place
}{
	{func() gopacket.SerializableLayer { return &layers.CMReq{} }, map[string]place{
		"LocalCommID": {0, 0, 32}, "ServiceID": {8, 0, 64}, "LocalCAGUID": {16, 0, 64}, "LocalQKey": {28, 0, 32}, "LocalQPN": {32, 0, 24},
		"ResponderResources": {35, 0, 8}, "LocalEECN": {36, 0, 24}, "InitiatorDepth": {39, 0, 8}, "RemoteEECN": {40, 0, 24},
		"RemoteCMResponseTimeout": {43, 0, 5}, "TransportService": {43, 5, 2}, "EndToEndFlowControl": {43, 7, 1}, "StartingPSN": {44, 0, 24},
		"LocalCMResponseTimeout": {47, 0, 5}, "RetryCount": {47, 5, 3}, "PKey": {48, 0, 16}, "PathMTU": {50, 0, 4}, "RDCExists": {50, 4, 1},
		"RNRRetryCount": {50, 5, 3}, "MaxCMRetries": {51, 0, 4}, "SRQ": {51, 4, 1}, "ExtendedTransport": {51, 5, 3},
		"Primary.LocalLID": {52, 0, 16}, "Primary.RemoteLID": {54, 0, 16}, "Primary.LocalGID": {56, 0, 128}, "Primary.RemoteGID": {72, 0, 128},
		"Primary.FlowLabel": {88, 0, 20}, "Primary.PacketRate": {91, 2, 6}, "Primary.TrafficClass": {92, 0, 8}, "Primary.HopLimit": {93, 0, 8},
		"Primary.SL": {94, 0, 4}, "Primary.SubnetLocal": {94, 4, 1}, "Primary.LocalAckTimeout": {95, 0, 5},
		"Alternate.LocalLID": {96, 0, 16}, "Alternate.RemoteLID": {98, 0, 16}, "Alternate.LocalGID": {100, 0, 128}, "Alternate.RemoteGID": {116, 0, 128},
		"Alternate.FlowLabel": {132, 0, 20}, "Alternate.PacketRate": {135, 2, 6}, "Alternate.TrafficClass": {136, 0, 8}, "Alternate.HopLimit": {137, 0, 8},
		"Alternate.SL": {138, 0, 4}, "Alternate.SubnetLocal": {138, 4, 1}, "Alternate.LocalAckTimeout": {139, 0, 5}, "PrivateData": {140, 0, 736},
	}},
	{func() gopacket.SerializableLayer { return &layers.CMMRA{} }, map[string]place{
		"LocalCommID": {0, 0, 32}, "RemoteCommID": {4, 0, 32}, "MessageMRAed": {8, 0, 2}, "ServiceTimeout": {9, 0, 5}, "PrivateData": {10, 0, 1776},
	}},
	{func() gopacket.SerializableLayer { return &layers.CMRej{} }, map[string]place{
		"LocalCommID": {0, 0, 32}, "RemoteCommID": {4, 0, 32}, "MessageRejected": {8, 0, 2}, "RejectInfoLength": {9, 0, 7}, "Reason": {10, 0, 16},
		"AdditionalInfo": {12, 0, 576}, "PrivateData": {84, 0, 1184},
	}},
	{func() gopacket.SerializableLayer { return &layers.CMRep{} }, map[string]place{
		"LocalCommID": {0, 0, 32}, "RemoteCommID": {4, 0, 32}, "LocalQKey": {8, 0, 32}, "LocalQPN": {12, 0, 24}, "LocalEECN": {16, 0, 24},
		"StartingPSN": {20, 0, 24}, "ResponderResources": {24, 0, 8}, "InitiatorDepth": {25, 0, 8}, "TargetAckDelay": {26, 0, 5},
		"FailoverAccepted": {26, 5, 2}, "EndToEndFlowControl": {26, 7, 1}, "RNRRetryCount": {27, 0, 3}, "SRQ": {27, 3, 1}, "LocalCAGUID": {28, 0, 64},
		"PrivateData": {36, 0, 1568},
	}},
	{func() gopacket.SerializableLayer { return &layers.CMRTU{} }, map[string]place{
		"LocalCommID": {0, 0, 32}, "RemoteCommID": {4, 0, 32}, "PrivateData": {8, 0, 1792},
	}},
	{func() gopacket.SerializableLayer { return &layers.CMDReq{} }, map[string]place{
		"LocalCommID": {0, 0, 32}, "RemoteCommID": {4, 0, 32}, "RemoteQPN": {8, 0, 24}, "PrivateData": {12, 0, 1760},
	}},
	{func() gopacket.SerializableLayer { return &layers.CMDRep{} }, map[string]place{
		"LocalCommID": {0, 0, 32}, "RemoteCommID": {4, 0, 32}, "PrivateData": {8, 0, 1792},
	}},
	{func() gopacket.SerializableLayer { return &layers.CMSIDRReq{} }, map[string]place{
		"RequestID": {0, 0, 32}, "PKey": {4, 0, 16}, "ServiceID": {8, 0, 64}, "PrivateData": {16, 0, 1728},
	}},
	{func() gopacket.SerializableLayer { return &layers.CMSIDRRep{} }, map[string]place{
		"RequestID": {0, 0, 32}, "Status": {4, 0, 8}, "AdditionalInfoLength": {5, 0, 8}, "QPN": {8, 0, 24}, "ServiceID": {12, 0, 64}, "QKey": {20, 0, 32},
		"AdditionalInfo": {24, 0, 576}, "PrivateData": {96, 0, 1088},
	}},
	{func() gopacket.SerializableLayer { return &layers.CMLAP{} }, map[string]place{
		"LocalCommID": {0, 0, 32}, "RemoteCommID": {4, 0, 32}, "RemoteQPN": {12, 0, 24}, "RemoteCMResponseTimeout": {15, 0, 5},
		"Alternate.LocalLID": {20, 0, 16}, "Alternate.RemoteLID": {22, 0, 16}, "Alternate.LocalGID": {24, 0, 128}, "Alternate.RemoteGID": {40, 0, 128},
		"Alternate.FlowLabel": {56, 0, 20}, "Alternate.TrafficClass": {59, 0, 8}, "Alternate.HopLimit": {60, 0, 8}, "Alternate.PacketRate": {61, 2, 6},
		"Alternate.SL": {62, 0, 4}, "Alternate.SubnetLocal": {62, 4, 1}, "Alternate.LocalAckTimeout": {63, 0, 5}, "PrivateData": {64, 0, 1344},
	}},
	{func() gopacket.SerializableLayer { return &layers.CMAPR{} }, map[string]place{
		"LocalCommID": {0, 0, 32}, "RemoteCommID": {4, 0, 32}, "AdditionalInfoLength": {8, 0, 8}, "Status": {9, 0, 8}, "AdditionalInfo": {12, 0, 576},
		"PrivateData": {84, 0, 1184},
	}},
	{func() gopacket.SerializableLayer { return &layers.MAD{} }, map[string]place{
		"BaseVersion": {0, 0, 8}, "Class": {1, 0, 8}, "ClassVersion": {2, 0, 8}, "Method": {3, 0, 8}, "Status": {4, 0, 16}, "ClassSpecific": {6, 0, 16},
		"TransactionID": {8, 0, 64}, "AttributeID": {16, 0, 16}, "AttributeModifier": {20, 0, 32},
	}},
}

// fill sets a field to ones, as many as its width.
func fill(v reflect.Value, width int) {
	switch v.Interface().(type) {
	case bth.PSN:
		v.Set(reflect.ValueOf(bth.MakePSN(bth.PSNMask)))
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")))
	case []byte:
		v.SetBytes([]byte(strings.Repeat("\xff", width/8)))
	case bool:
		v.SetBool(true)
	default:
		v.SetUint(math.MaxUint64 >> (64 - width))
	}
}

// A field of ones sets the bits of its place and no others, and every field
// but the reserved ones has a place.
func TestLayout(t *testing.T) {
	for _, l := range layouts {
		named := map[string]bool{}
		for name, at := range l.at {
			m := l.make()
			v := reflect.ValueOf(m).Elem()
			for part := range strings.SplitSeq(name, ".") {
				v = v.FieldByName(part)
			}
			fill(v, at.width)
			named[name] = true
			buf := gopacket.NewSerializeBuffer()
			require.NoError(t, m.SerializeTo(buf, gopacket.SerializeOptions{}), name)
			want := make([]byte, len(buf.Bytes()))
			for i := range at.width {
				bit := at.octet*8 + at.bit + i
				want[bit/8] |= 0x80 >> (bit % 8)
			}
			require.Equal(t, want, buf.Bytes(), "%v %s", m.LayerType(), name)
		}
		for _, name := range leaves(reflect.TypeOf(l.make()).Elem(), "") {
			require.True(t, named[name], "%T.%s has no place", l.make(), name)
		}
	}
}

func leaves(typ reflect.Type, prefix string) (names []string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		switch {
		case f.Name == "BaseLayer" || strings.HasPrefix(f.Name, "Resv"):
		case f.Type == reflect.TypeFor[layers.CMPath]():
			names = append(names, leaves(f.Type, fmt.Sprint(prefix, f.Name, "."))...)
		default:
			names = append(names, prefix+f.Name)
		}
	}
	return names
}
