"""The network: encrypted messages with arrays between the processes of a run, over ZeroMQ. Nothing is pickled.

`frames` defines the messages, `keys` the credentials and the two kinds of trusted peers, `sockets` the sockets of an event
loop. `server` offers arrays to workers, and `client` is the workers' side. The client also runs inside Lambda, so this
package imports only NumPy and ZeroMQ, and of dorylax only the modules without dependencies.
"""
