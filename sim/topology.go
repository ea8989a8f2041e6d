package sim

import "fmt"

// Topology is what networks with switches that have a shape are made of. Hosts are
// named h1, h2 and so on at a single switch, and by switch and number at several:
// h2.1 is the first at the second. Switches are s1, s2 and so on.
type Topology struct {
	Line   Line         // of each node
	Trunk  Line         // between switches (Line)
	Switch SwitchConfig // of each; the name is not used
	Node   NodeConfig   // of each; Name, Switch and Line are not used
	// Change, if set, may alter what a node is like before it is added.
	Change func(name string, c *NodeConfig)
}

// Star is n hosts at one switch: where n-1 of them send to the last one, it is an
// incast.
func (t Topology) Star(s *Sim, n int) ([]*Node, error) {
	hosts, err := t.build(s, 1, []int{n}, nil)
	if err != nil {
		return nil, err
	}
	return hosts[0], nil
}

// Dumbbell is n hosts at each of two switches: all that crosses shares the line
// between these.
//
//	h1.1 --+            +-- h2.1
//	       s1 ======== s2
//	h1.n --+            +-- h2.n
func (t Topology) Dumbbell(s *Sim, n int) (left, right []*Node, err error) {
	hosts, err := t.build(s, 2, []int{n, n}, [][2]int{{0, 1}})
	if err != nil {
		return nil, nil, err
	}
	return hosts[0], hosts[1], nil
}

// ParkingLot is a row of switches with n hosts at each. A flow along the row shares
// each line of it with others that go one switch on.
//
//	h1.1   h2.1   h3.1
//	 |      |      |
//	 s1 === s2 === s3
func (t Topology) ParkingLot(s *Sim, switches, n int) ([][]*Node, error) {
	var hosts []int
	var trunks [][2]int
	for i := range switches {
		hosts = append(hosts, n)
		if i > 0 {
			trunks = append(trunks, [2]int{i - 1, i})
		}
	}
	return t.build(s, switches, hosts, trunks)
}

// LeafSpine is n hosts at each of some switches, the leaves, which have a line each
// to one more, the last.
//
//	      spine
//	    /   |   \
//	  s1   s2   s3
//	  |    |    |
//	h1.1  h2.1  h3.1
func (t Topology) LeafSpine(s *Sim, leaves, n int) ([][]*Node, error) {
	var hosts []int
	var trunks [][2]int
	for i := range leaves {
		hosts = append(hosts, n)
		trunks = append(trunks, [2]int{i, leaves})
	}
	return t.build(s, leaves+1, append(hosts, 0), trunks)
}

func (t Topology) build(s *Sim, switches int, hosts []int, trunks [][2]int) ([][]*Node, error) {
	if t.Trunk == (Line{}) {
		t.Trunk = t.Line
	}
	var sws []*Switch
	for i := range switches {
		c := t.Switch
		c.Name = fmt.Sprintf("s%d", i+1)
		if hosts[i] == 0 {
			c.Name = "spine"
		}
		sw, err := s.AddSwitch(c)
		if err != nil {
			return nil, err
		}
		sws = append(sws, sw)
	}
	for _, p := range trunks {
		if err := sws[p[0]].Connect(sws[p[1]], t.Trunk); err != nil {
			return nil, err
		}
	}
	nodes := make([][]*Node, switches)
	for i, sw := range sws {
		for j := range hosts[i] {
			c := t.Node
			c.Name, c.Switch, c.Line = fmt.Sprintf("h%d.%d", i+1, j+1), sw, t.Line
			if switches == 1 {
				c.Name = fmt.Sprintf("h%d", j+1)
			}
			if t.Change != nil {
				t.Change(c.Name, &c)
			}
			n, err := s.Add(c)
			if err != nil {
				return nil, err
			}
			nodes[i] = append(nodes[i], n)
		}
	}
	return nodes, nil
}
