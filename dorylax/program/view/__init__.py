"""Views of a program for people: its cost, a table, plain values, and a drawing."""
