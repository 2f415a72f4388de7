//! The load against a server that answers everything with 201, and lies.
