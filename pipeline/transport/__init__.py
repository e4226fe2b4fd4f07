"""How servers talk: a request reaches an address and is answered, whatever carries it."""
