package cc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A profile sets what the rest of the list does not, wherever it stands.
func TestProfileCountsFirst(t *testing.T) {
	for _, list := range []string{"dcqcn,rp_ai_rate=10,profile=paper", "profile=paper,rp_ai_rate=10", "dcqcn, profile=paper, rp_ai_rate=10"} {
		c := Default()
		require.NoError(t, c.Parse(list))
		require.Equal(t, 10, c.RPAIRate, list)
		require.Equal(t, 5, c.RPThreshold, list)
	}
	c := Default()
	require.ErrorContains(t, c.Parse("swift,profile=mine"), `profile "mine": there are mlx5, paper`)
	require.Equal(t, Default(), c)
	require.NoError(t, c.Parse("swift,profile=paper"))
	require.Equal(t, AlgSwift, c.Algorithm)
}
