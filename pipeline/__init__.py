"""Bounded-asynchronous training: intervals, graph servers, parameter servers, the staleness ledger and what drives them."""
