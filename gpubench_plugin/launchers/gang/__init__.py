"""Several ranks driven by one pytest process: started, watched, and one verdict made of them."""
