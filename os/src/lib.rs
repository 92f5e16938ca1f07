//! The operating system: sockets, waiting, interfaces, names, time. Everything here returns values and errors with a
//! cause; nothing here knows what an endpoint is.
#![deny(unsafe_code)]

pub mod clock;
pub mod control_socket;
pub mod datagram;
pub mod descriptor;
pub mod limits;
pub mod mutex_cond;
pub mod netif;
pub mod poller;
pub mod process;
pub mod resolve;
pub mod shm;
pub mod shortage;
pub mod socket;
#[cfg(test)]
mod spawning;
pub mod thread;
pub mod wait_fd;

/// Bytes that nobody can predict.
pub fn random<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    // Linux has getrandom(2) since 3.17; without it nonces would be guessable, and there is no good answer to that.
    getrandom::fill(&mut out).expect("the system has random numbers");
    out
}
