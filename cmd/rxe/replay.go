package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe/internal/pcap"
	"github.com/gorxe/gorxe/internal/replay"
)

func newReplayCmd() *cobra.Command {
	var (
		side, only string
		number     int
		plain      bool
		asJSON     bool
	)
	cmd := &cobra.Command{
		Use:   "replay FILE --side A|B",
		Short: "Play one side of a recorded connection against this engine as the other",
		Long: `Play one side of each reliable connection in a capture (pcap, pcapng, either
also gzipped, or .hex) against this program's engine in place of the other side,
and compare what the engine sends with what the recorded side sent. A is the side
that sent the first packet of its connection, B the other; --side names the one
that is played as recorded.

The engine is configured from what is seen: path MTU, PSNs, the memory that
requests name and what READs and atomics found there, receive requests as
messages took them, work requests as they were sent, timers and depths from the
connection manager's messages where there are any. Where the recorded side is
seen to have a habit of its own around receiver-not-ready NAKs, the engine is
given that too, and the summary says so; --plain leaves it out.

Each packet gets one line: the recorded one, and beside it ours. The sign between
them is = for the same, ~ for what may differ, ! for a difference, and a point
where there is nothing to compare: packets lost before they were recorded, or
beyond the ends of the capture. These may differ, and nothing else: the credit
code, which of several legal PSNs an ACK names, ACK coalescing, whether a READ
asked for again in its middle is answered as FIRST or MIDDLE, MigReq, the UDP
source port and the identification of IPv4.

The exit status is 0 when nothing differs, and 1 otherwise.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("replay takes one FILE: a capture (pcap, pcapng or .hex), or - for standard input; not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			convs, left, err := readConversations(args[0])
			if err != nil {
				return err
			}
			for _, why := range slices.Sorted(maps.Keys(left)) {
				fmt.Fprintf(cmd.ErrOrStderr(), "rxe: %d packets left out: %s\n", left[why], why)
			}
			o := replay.Options{Plain: plain}
			switch strings.ToUpper(side) {
			case "A":
				o.Side = replay.A
			case "B":
				o.Side = replay.B
			default:
				return fmt.Errorf("--side %q: name the side to play, A or B, of\n%s", side, listConversations(convs))
			}
			if convs, err = chosen(convs, number, only); err != nil {
				return err
			}
			out := bufio.NewWriter(cmd.OutOrStdout())
			err = replayAll(out, convs, o, asJSON)
			if ferr := out.Flush(); err == nil {
				err = ferr
			}
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&side, "side", "", "A or B: the side that is played as it was recorded")
	cmd.Flags().IntVar(&number, "conversation", 0, "only the connection with this number, from 1")
	cmd.Flags().StringVar(&only, "between", "", "only connections of this address, such as 192.0.2.1")
	cmd.Flags().BoolVar(&plain, "plain", false, "do not give the engine habits of the recorded side")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line: packets, and a summary for each connection")
	return cmd
}

func readConversations(name string) ([]*replay.Conversation, map[string]int, error) {
	r, err := pcap.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	convs, left, err := replay.Read(r)
	if errors.Is(err, replay.ErrNoRC) {
		err = fmt.Errorf("%s: %w; rxe decode shows what the capture holds", name, err)
	}
	return convs, left, err
}

// listConversations is a line for each, with its number.
func listConversations(convs []*replay.Conversation) string {
	var b strings.Builder
	for i, c := range convs {
		fmt.Fprintf(&b, "%5d  %v\n", i+1, c)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// chosen narrows conversations down to one number, or to those of an address.
func chosen(convs []*replay.Conversation, number int, addr string) ([]*replay.Conversation, error) {
	if number != 0 {
		if number < 0 || number > len(convs) {
			return nil, fmt.Errorf("--conversation %d: there are\n%s", number, listConversations(convs))
		}
		convs = convs[number-1 : number]
	}
	if addr == "" {
		return convs, nil
	}
	out := slices.DeleteFunc(slices.Clone(convs), func(c *replay.Conversation) bool {
		return c.Ends[replay.A].Addr != addr && c.Ends[replay.B].Addr != addr
	})
	if len(out) == 0 {
		return nil, fmt.Errorf("--between %s: no connection has that address; there are\n%s", addr, listConversations(convs))
	}
	return out, nil
}

// replayAll replays conversations one after the other. The error counts the
// differences.
func replayAll(out io.Writer, convs []*replay.Conversation, o replay.Options, asJSON bool) error {
	differences := 0
	for i, c := range convs {
		if !asJSON && i > 0 {
			fmt.Fprintln(out)
		}
		res, err := replay.Run(c, o)
		if err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
		if err := res.Write(out, asJSON); err != nil {
			return err
		}
		differences += res.Differences
	}
	if differences > 0 {
		return fmt.Errorf("%d differences", differences)
	}
	return nil
}
