"""What tests of several folders share: oracles, model collections, generators of programs."""
