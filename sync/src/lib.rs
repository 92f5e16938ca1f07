//! Every atomic, lock and shared word of the project.
#![deny(unsafe_code)]

pub mod account;
pub mod bias;
pub mod busy;
pub mod doorbell;
pub mod handles;
pub mod held;
pub mod histogram;
pub mod lines;
pub mod lock;
pub mod nap;
pub mod park;
pub mod primitive;
pub mod ready_list;
mod thread;
pub mod uses;
