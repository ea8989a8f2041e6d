package mr

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A slot is used again once 1024 others were freed after it, the oldest first.
func TestSlotRests(t *testing.T) {
	table := NewTable(1)
	first, err := table.Register(Region{})
	require.NoError(t, err)
	require.NoError(t, table.Deregister(first.Key))
	n := 0
	for {
		r, err := table.Register(Region{})
		require.NoError(t, err)
		if r.Key>>8 == first.Key>>8 {
			assert.Equal(t, first.Key+1, r.Key, "the low octet counts")
			break
		}
		n++
		require.NoError(t, table.Deregister(r.Key))
	}
	assert.Equal(t, 1024, n)
	assert.Equal(t, 1, table.Len())
}

// A full table says so, and gives a freed slot at once.
func TestFull(t *testing.T) {
	table := NewTable(1)
	r, err := table.Register(Region{})
	require.NoError(t, err)
	require.NoError(t, table.Deregister(r.Key))
	table.used = MaxRegions // as if so many had been registered
	again, err := table.Register(Region{})
	require.NoError(t, err)
	assert.Equal(t, r.Key>>8, again.Key>>8)
	_, err = table.Register(Region{})
	assert.ErrorIs(t, err, ErrFull)
	assert.Equal(t, 1<<24-1, MaxRegions)
}
