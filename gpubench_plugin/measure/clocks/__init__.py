"""One clock per way of taking time; the fakes that test them stand beside them."""
