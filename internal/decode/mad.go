package decode

import (
	"fmt"
)

// madLen is the common header of a management datagram. IBA 13.4.2.
const madLen = 24

// MAD is the common header of a management datagram.
type MAD struct {
	BaseVersion       uint8  `json:"base_version"`
	Class             uint8  `json:"class"`
	ClassName         string `json:"class_name"`
	ClassVersion      uint8  `json:"class_version"`
	Method            uint8  `json:"method"`
	MethodName        string `json:"method_name"`
	Status            uint16 `json:"status"`
	TID               uint64 `json:"tid"`
	Attribute         uint16 `json:"attribute"`
	AttributeName     string `json:"attribute_name,omitempty"`
	AttributeModifier uint32 `json:"attribute_modifier"`
}

// Management classes. IBA 13.4.4.
const (
	classCM = 0x07
)

var classNames = map[uint8]string{
	0x01: "SubnLID", 0x03: "SubnAdm", 0x04: "Perf", 0x05: "BM", 0x06: "DevMgt", classCM: "CM", 0x08: "SNMP", 0x81: "SubnDR",
}

// methodNames are the methods of every class. IBA 13.4.5.
var methodNames = map[uint8]string{
	0x01: "Get", 0x02: "Set", 0x03: "Send", 0x05: "Trap", 0x06: "Report", 0x07: "TrapRepress",
	0x81: "GetResp", 0x86: "ReportResp",
}

// mad decodes the payload of a datagram to QP 0 or 1.
func (p *Packet) mad(b []byte) {
	if len(b) < madLen || b[0] != 1 {
		p.Notes = append(p.Notes, "the payload is no management datagram")
		return
	}
	m := &MAD{
		BaseVersion: b[0], Class: b[1], ClassVersion: b[2], Method: b[3], Status: be.Uint16(b[4:]), TID: be.Uint64(b[8:]),
		Attribute: be.Uint16(b[16:]), AttributeModifier: be.Uint32(b[20:]),
	}
	m.ClassName = name(classNames, m.Class)
	m.MethodName = name(methodNames, m.Method)
	p.MAD = m
	if m.Class == classCM {
		m.AttributeName = cmNames[m.Attribute]
		p.CM = parseCM(m.Attribute, b[madLen:])
	}
}

func name(names map[uint8]string, v uint8) string {
	if n, ok := names[v]; ok {
		return n
	}
	return fmt.Sprintf("0x%02x", v)
}

// String names the datagram: "SubnLID Get attribute 0x0020".
func (m *MAD) String() string {
	s := fmt.Sprintf("%s %s attribute 0x%04x", m.ClassName, m.MethodName, m.Attribute)
	if m.Status != 0 {
		s += fmt.Sprintf(" status 0x%04x", m.Status)
	}
	return s
}
