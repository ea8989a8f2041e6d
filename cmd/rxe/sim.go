package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorxe/gorxe/internal/lab"
	"github.com/gorxe/gorxe/sim/scenarios"
)

func newSimCmd() *cobra.Command {
	var (
		list, show           bool
		csv, html, json, set = "", "", "", []string(nil)
		seed                 uint64
	)
	cmd := &cobra.Command{
		Use:   "sim FILE.toml | NAME",
		Short: "Simulate congestion: switches, flows, and how DCQCN takes it",
		Long: `Simulate a network with switches, marking, priority flow control and tail drop,
in which this module's NICs send to each other, and report what each flow got, how
long queues became, and when it settled. Time is simulated, and the same scenario
gives the same report. FILE.toml is a scenario, of which docs/sim.md says what may
be in it; NAME is one of those that come with gorxe.`,
		Example: `  rxe sim --list
  rxe sim incast-16 --html incast.html
  rxe sim incast-16 --set profile=mlx5 --set rp_ai_rate=40
  rxe sim --show incast-16 > mine.toml && rxe sim mine.toml --csv mine.csv`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !list {
				return errors.New("sim needs a FILE.toml, or the NAME of a scenario; rxe sim --list tells them")
			}
			return cobra.MaximumNArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			if list {
				return listScenarios(out)
			}
			file, name, text, err := readScenario(args[0])
			if err != nil {
				return err
			}
			if show {
				_, err := out.Write(text)
				return err
			}
			s, err := lab.Parse(file, name, text, set...)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("seed") {
				s.Seed = seed
			}
			r, err := s.Run()
			if err != nil {
				return err
			}
			if err := r.WriteTable(out); err != nil {
				return err
			}
			return errors.Join(writeTo(csv, r.WriteCSV), writeTo(html, r.WriteHTML), writeTo(json, r.WriteJSON))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&list, "list", false, "list the scenarios that come with gorxe")
	f.BoolVar(&show, "show", false, "print the scenario and do not run it")
	f.StringVar(&csv, "csv", "", "write the time series to this `file`")
	f.StringVar(&html, "html", "", "write a page with plots to this `file`")
	f.StringVar(&json, "json", "", "write all figures to this `file`")
	f.Uint64Var(&seed, "seed", 0, "of what is left to chance, in place of the scenario's")
	f.StringArrayVar(&set, "set", nil, "change a parameter of congestion control, such as rp_ai_rate=40; may be given again")
	return cmd
}

// readScenario reads a file, or a scenario by its name.
func readScenario(arg string) (file, name string, text []byte, err error) {
	if text, err = scenarios.Read(arg); err == nil {
		return arg + ".toml", arg, text, nil
	}
	text, err = os.ReadFile(arg)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(arg, "./") {
		return "", "", nil, fmt.Errorf("there is no scenario %q; there are %s", arg, strings.Join(scenarios.Names(), ", "))
	}
	return arg, strings.TrimSuffix(filepath.Base(arg), ".toml"), text, err
}

func listScenarios(w io.Writer) error {
	for _, name := range scenarios.Names() {
		_, _, text, err := readScenario(name)
		if err != nil {
			return err
		}
		s, err := lab.Parse(name+".toml", name, text)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%-20s %s\n", name, s.Title); err != nil {
			return err
		}
	}
	return nil
}

// writeTo writes a report to a file, where one is named.
func writeTo(file string, write func(io.Writer) error) error {
	if file == "" {
		return nil
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
