//! The processes of peers: links to the same process share a descriptor that tells its end.

use ofi_os::process::Life;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Peers' processes by id.
#[derive(Debug, Default)]
pub(super) struct Lives(HashMap<i32, Weak<Life>>);

impl Lives {
    /// The [`Life`] of a process. `links`: how many there are, which bounds the table.
    pub(super) fn find(&mut self, pid: i32, links: usize) -> Option<Arc<Life>> {
        let known = self.0.get(&pid).and_then(Weak::upgrade);
        // Another process may have the id by now.
        if let Some(life) = known.filter(|life| !life.is_over()) {
            return Some(life);
        }
        let life = Arc::new(Life::of(pid)?);
        if self.0.len() > 2 * links {
            self.0.retain(|_, life| life.strong_count() > 0);
        }
        self.0.insert(pid, Arc::downgrade(&life));
        Some(life)
    }
}
