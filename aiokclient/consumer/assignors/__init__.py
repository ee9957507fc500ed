"""Client-side partition assignment: the strategies, and the wire format between members."""
