package main

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe/internal/decode"
	"github.com/gorxe/gorxe/internal/pcap"
)

func oneFile(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return errors.New("decode needs a FILE: a capture (pcap, pcapng or .hex), or - for standard input")
	case 1:
		return nil
	}
	return fmt.Errorf("decode takes one FILE at a time, not %d", len(args))
}

func newDecodeCmd() *cobra.Command {
	var (
		opts   decode.Options
		strict bool
	)
	cmd := &cobra.Command{
		Use:   "decode FILE",
		Short: "Decode a capture of RoCEv2, RoCE v1 or native InfiniBand, one line a packet",
		Long: `Decode a capture: pcap, pcapng (either also gzipped), or a .hex file, where a
line is a packet in hexadecimal (from the Ethernet header on, or from the IP
header on when the file's name ends in -l3.hex). FILE - is standard input.

Each packet gets one line: number, seconds since the first, addresses, opcode,
destination queue pair, PSN, every header, and whether the invariant CRC holds.
What is wrong with a packet follows an exclamation mark, in words; a comment of
the capture on the packet follows a number sign. A burst that was captured on its
sender, before the kernel split it, gives a line for each of its packets.

The exit status is 0 if the file could be read; with --strict it is 1 when a
packet is bad as well. Frames of other protocols are not bad.`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := pcap.Open(args[0])
			if err != nil {
				return err
			}
			defer r.Close()
			out := bufio.NewWriter(cmd.OutOrStdout())
			bad, err := decode.Run(out, r, opts)
			if ferr := out.Flush(); err == nil {
				err = ferr
			}
			if err == nil && strict && bad > 0 {
				err = fmt.Errorf("%s: %d bad packets", args[0], bad)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "one JSON object a line, with every field of every header")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with status 1 when a packet is bad")
	return cmd
}
