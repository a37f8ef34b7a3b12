#![cfg(loom)]
//! Model tests.
