"""Check that hookviz is exact on models of other libraries, and shows them."""
