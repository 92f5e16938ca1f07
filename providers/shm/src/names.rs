//! Default endpoint names: random identities. fi_getinfo(3) proposes one for an endpoint to come.
//! Only the first endpoint opened with it gets it, because to peers an identity is one endpoint.
//! A passive endpoint releases its identity to the active one that replaces it (fi_endpoint(3)).

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Proposals remembered. An older one counts as a name that the application chose.
const MOST: usize = 1 << 16;

/// A random number that identifies an endpoint, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(pub(crate) [u8; 16]);

impl Identity {
    pub(crate) fn random() -> Self {
        Self(ofi_os::random())
    }

    /// The name under which peers reach it.
    pub(crate) fn name(self) -> String {
        format!("fi_shm://{:032x}", u128::from_be_bytes(self.0))
    }

    /// The identity that a name spells, if it spells one.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let digits = name.strip_prefix("fi_shm://").filter(|rest| rest.len() == 32)?;
        if !digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        u128::from_str_radix(digits, 16).ok().map(|number| Self(number.to_be_bytes()))
    }
}

/// Whether another endpoint may take the name later: the application chose it, it is no identity.
pub(crate) fn is_chosen(name: &str) -> bool {
    Identity::of_name(name).is_none()
}

/// Whether a name was made of a node alone, which several endpoints may share (fi_shm(7)), or looks
/// like that.
pub(crate) fn is_of_node(name: &str) -> bool {
    name.starts_with("fi_shm://") && is_chosen(name)
}

/// The result of claiming a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The caller has it from now on.
    Granted,
    /// Another endpoint has it.
    Spent,
    /// No such proposal: the application chose the name, or kept the proposal for very long.
    Unknown,
}

/// The latest proposals, each with a flag that an endpoint has it. A fixed array: remembering a
/// proposal cannot fail for lack of memory.
#[derive(Debug)]
struct Proposals {
    latest: [(Identity, bool); MOST],
    /// Proposals so far.
    made: usize,
}

impl Proposals {
    fn remember(&mut self, identity: Identity) {
        self.latest[self.made % MOST] = (identity, false);
        self.made += 1;
    }

    /// The flag that an endpoint has it; `None` if the proposal is not remembered.
    fn spent(&mut self, identity: Identity) -> Option<&mut bool> {
        let remembered = self.made.saturating_sub(MOST)..self.made;
        let at = remembered.rev().map(|number| number % MOST).find(|at| self.latest[*at].0 == identity)?;
        Some(&mut self.latest[at].1)
    }
}

fn proposals() -> MutexGuard<'static, Proposals> {
    static PROPOSALS: Mutex<Proposals> = Mutex::new(Proposals { latest: [(Identity([0; 16]), false); MOST], made: 0 });
    PROPOSALS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock of the proposals, held while the process forks.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "it is held")] MutexGuard<'static, Proposals>);

/// Locks the proposals.
pub(crate) fn hold() -> Held {
    Held(proposals())
}

/// Proposes an identity for an endpoint that is yet to be opened.
pub(crate) fn propose() -> Identity {
    let identity = Identity::random();
    proposals().remember(identity);
    identity
}

/// Claims a proposed identity.
pub(crate) fn claim(identity: Identity) -> Claim {
    match proposals().spent(identity) {
        Some(true) => Claim::Spent,
        Some(spent) => {
            *spent = true;
            Claim::Granted
        }
        None => Claim::Unknown,
    }
}

/// Releases the identity of a passive endpoint, or one that an endpoint claimed but could not use.
pub(crate) fn release(identity: Identity) {
    if let Some(spent) = proposals().spent(identity) {
        *spent = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_identity() {
        let identity = Identity::random();
        assert_eq!(Identity::of_name(&identity.name()), Some(identity));
        let signed = format!("fi_shm://+{}", "0".repeat(31));
        for chosen in ["fi_shm://job", "fi_shm://", "fi_ns://00000000000000000000000000000000", signed.as_str()] {
            assert_eq!(Identity::of_name(chosen), None, "{chosen}");
            assert!(is_chosen(chosen));
        }
    }

    #[test]
    fn a_proposal_is_granted_once_or_until_it_is_given_back() {
        let identity = propose();
        assert_eq!(claim(identity), Claim::Granted);
        assert_eq!(claim(identity), Claim::Spent);
        release(identity);
        assert_eq!(claim(identity), Claim::Granted);
        assert_eq!(claim(Identity::random()), Claim::Unknown);
    }
}
