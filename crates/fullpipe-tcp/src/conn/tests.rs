//! Connections against each other and against scripts.
