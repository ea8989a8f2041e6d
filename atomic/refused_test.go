package atomic

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// What is refused returns no value and changes nothing.
func TestRefused(t *testing.T) {
	b := []byte{1, 2, 3, 4, 5, 6, 7}
	old, ok := FetchAdd(b, 1)
	assert.False(t, ok)
	assert.Zero(t, old)
	old, ok = CmpSwap(b, 0, 1)
	assert.False(t, ok)
	assert.Zero(t, old)
	assert.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7}, b)
}
