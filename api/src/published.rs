//! What the endpoints of other processes have done and wait for, as their libraries publish it
//! (`FI_OFI_STATE`). `ofi dump` and `ofi top` show it.
//!
//! A process publishes the state of each endpoint about once a second while it polls or after it
//! has slept for a second; one that computes for longer publishes nothing meanwhile. Messages pay
//! nothing for it, except that they wait while a report of their endpoint is made.

use ofi_core::error::Result;
use ofi_core::{Errno, Error};
pub use ofi_engine::report::{Published, PublishedConnections, PublishedHeld, PublishedPeer, PublishedPeers};
use ofi_os::{clock, published};
use std::io;
use std::time::Duration;

/// A process that uses the library.
///
/// ```
/// let busiest = ofi::published::processes().into_iter().max_by_key(|process| process.endpoints.len());
/// if let Some(process) = busiest {
///     println!("{} has most endpoints", process.command);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number.
    pub id: u32,
    /// Its command, as ps(1) shows it.
    pub command: String,
    /// Its endpoints.
    pub endpoints: Vec<Published>,
}

/// How long ago an endpoint's report was made.
///
/// ```
/// for endpoint in ofi::published::processes().iter().flat_map(|process| &process.endpoints) {
///     println!("as of {:?} ago", ofi::published::age(endpoint));
/// }
/// ```
pub fn age(endpoint: &Published) -> Duration {
    Duration::from_nanos(clock::now().nanos().saturating_sub(endpoint.time))
}

fn look(id: u32) -> io::Result<Option<Process>> {
    let texts = published::read(id)?;
    if texts.is_empty() {
        return Ok(None);
    }
    let endpoints = texts.iter().flat_map(|text| Published::parse(text)).collect();
    Ok(Some(Process { id, command: published::command_of(id), endpoints }))
}

/// The state of a process of this user.
///
/// # Errors
/// ENOENT if there is no such process, EACCES if it is another user's, ENODATA if it has not
/// published anything: it uses another library, has no endpoint, or has not polled or slept for a
/// second since it opened one.
///
/// ```
/// let missing = ofi::published::process(u32::MAX);
/// assert_eq!(missing.unwrap_err().errno(), ofi::Errno::ENOENT);
/// ```
pub fn process(id: u32) -> Result<Process> {
    let found = look(id).map_err(|error| Error::os(error, format!("read the state of process {id}")))?;
    found.ok_or_else(|| Error::new(Errno::ENODATA, format!("process {id} has not published the state of endpoints")))
}

/// All processes of this user that have published state.
///
/// ```
/// for process in ofi::published::processes() {
///     println!("{} {}: {} endpoints", process.id, process.command, process.endpoints.len());
/// }
/// ```
pub fn processes() -> Vec<Process> {
    published::processes().into_iter().filter_map(|id| look(id).ok().flatten()).collect()
}
