//! The hello, the first message on a link: the endpoint's identity, its initial credits and the
//! application's connection data. Either side refuses a peer that sends anything else, with a
//! reason.
//!
//! ```text
//! "OFI\n" · version u16 · kind u8 · endpoint u8 · nonce [16] · attempt u64 · cookie [16] · bytes u64 · eager u32 · requests u32
//!         · preview u32 · transmit context u16 · receive context u16 · address length u8 · address · data length u16 · data
//! ```

use crate::wire::frame::{VERSION, Violation};
use ofi_core::Addr;

const MAGIC: [u8; 4] = *b"OFI\n";
/// The most connection data of an application, in bytes (FI_OPT_CM_DATA_SIZE).
pub const MAX_USER_DATA: usize = 256;
/// The longest hello, in bytes.
pub const MAX_LEN: usize = 72 + 1 + ofi_core::addr::MAX_LEN + 2 + MAX_USER_DATA;

/// The kind of a handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Requests a link.
    Connect,
    /// Accepts it.
    Accept,
    /// Refuses it on behalf of the application (fi_reject(3)).
    Reject,
    /// Refuses it because both sides connected: the other direction's connection is used.
    Crossing,
    /// Refuses it for a reason of the endpoint: another protocol version, another kind of endpoint,
    /// or no more connections.
    Refuse,
    /// Asks which of the connections with the cookies in `data` the endpoint at this address made.
    Verify,
    /// Answers that it made the connection with this cookie.
    Mine,
    /// Answers that it made none of them.
    NotMine,
}

impl Handshake {
    const ALL: [Self; 8] = [
        Self::Connect,
        Self::Accept,
        Self::Reject,
        Self::Crossing,
        Self::Refuse,
        Self::Verify,
        Self::Mine,
        Self::NotMine,
    ];

    const fn code(self) -> u8 {
        match self {
            Self::Connect => 1,
            Self::Accept => 2,
            Self::Reject => 3,
            Self::Crossing => 4,
            Self::Refuse => 5,
            Self::Verify => 6,
            Self::Mine => 7,
            Self::NotMine => 8,
        }
    }
}

/// The kind of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointKind {
    /// Connectionless.
    Rdm,
    /// Connected.
    Msg,
}

/// The initial credits that an endpoint grants its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    /// Bytes of messages and their overhead.
    pub bytes: u64,
    /// The longest eager message, in bytes.
    pub eager: u32,
    /// Number of requests whose responses may be outstanding: reads and atomic operations with a
    /// result.
    pub requests: u32,
    /// How many first bytes of a message the peer sends along with its RTS, except for groups.
    pub preview: u32,
}

/// The contexts of scalable endpoints that a connection is between (fi_endpoint(3)); both 0 if it
/// is between ordinary endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contexts {
    /// One more than the index of the initiator's transmit context; 0 for an ordinary endpoint.
    pub transmit: u16,
    /// The index of the target's receive context. An ordinary endpoint has the index 0 alone.
    pub receive: u16,
}

/// A handshake message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The kind of message.
    pub handshake: Handshake,
    /// The kind of the sender's endpoint.
    pub kind: EndpointKind,
    /// Random number of the endpoint: a restarted peer has another.
    pub nonce: [u8; 16],
    /// The sender's count of connection attempts, to all peers: exposes a connect request that
    /// arrives late.
    pub attempt: u64,
    /// Random number of the connection, which only its two ends know; in [`Handshake::Mine`], the
    /// cookie that was asked about.
    pub cookie: [u8; 16],
    /// The credits that the sender grants its peer.
    pub credits: Credits,
    /// The contexts at the two ends; in answers both are 0.
    pub contexts: Contexts,
    /// The sender's address, at which peers can connect to it.
    pub name: Option<Addr>,
    /// The application's data, the reason for a refusal, or the cookies of a [`Handshake::Verify`].
    pub data: Vec<u8>,
}

impl Hello {
    /// Encodes the hello. Data beyond [`MAX_USER_DATA`] is cut, as fi_cm(3) says.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAX_LEN);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.push(self.handshake.code());
        out.push(match self.kind {
            EndpointKind::Rdm => 1,
            EndpointKind::Msg => 2,
        });
        out.extend(self.nonce);
        out.extend(self.attempt.to_le_bytes());
        out.extend(self.cookie);
        out.extend(self.credits.bytes.to_le_bytes());
        out.extend(self.credits.eager.to_le_bytes());
        out.extend(self.credits.requests.to_le_bytes());
        out.extend(self.credits.preview.to_le_bytes());
        out.extend(self.contexts.transmit.to_le_bytes());
        out.extend(self.contexts.receive.to_le_bytes());
        match &self.name {
            Some(addr) => {
                let (bytes, len) = addr.encode();
                out.push(u8::try_from(len).unwrap_or(0));
                out.extend(&bytes[..len]);
            }
            None => out.push(0),
        }
        let data = &self.data[..self.data.len().min(MAX_USER_DATA)];
        out.extend(u16::try_from(data.len()).unwrap_or(0).to_le_bytes());
        out.extend(data);
        out
    }

    /// Parses a hello.
    pub fn parse(bytes: &[u8]) -> Result<Self, Violation> {
        const SHORT: Violation = Violation("a hello is too short");
        let mut rest = bytes;
        let mut take = |count: usize| -> Result<&[u8], Violation> {
            let (head, tail) = rest.split_at_checked(count).ok_or(SHORT)?;
            rest = tail;
            Ok(head)
        };
        if take(4)? != MAGIC {
            return Err(Violation("the peer speaks another protocol"));
        }
        let version = u16::from_le_bytes(take(2)?.try_into().map_err(|_| SHORT)?);
        if version != VERSION {
            return Err(Violation("the peer speaks another version of the protocol"));
        }
        let kind = *take(1)?.first().ok_or(SHORT)?;
        let handshake = Handshake::ALL.into_iter().find(|handshake| handshake.code() == kind);
        let handshake = handshake.ok_or(Violation("a hello with an unknown handshake kind"))?;
        let kind = match take(1)? {
            [1] => EndpointKind::Rdm,
            [2] => EndpointKind::Msg,
            _ => return Err(Violation("a hello with an unknown endpoint kind")),
        };
        let nonce = take(16)?.try_into().map_err(|_| SHORT)?;
        let attempt = u64::from_le_bytes(take(8)?.try_into().map_err(|_| SHORT)?);
        let cookie = take(16)?.try_into().map_err(|_| SHORT)?;
        let credits = Credits {
            bytes: u64::from_le_bytes(take(8)?.try_into().map_err(|_| SHORT)?),
            eager: u32::from_le_bytes(take(4)?.try_into().map_err(|_| SHORT)?),
            requests: u32::from_le_bytes(take(4)?.try_into().map_err(|_| SHORT)?),
            preview: u32::from_le_bytes(take(4)?.try_into().map_err(|_| SHORT)?),
        };
        let contexts = Contexts {
            transmit: u16::from_le_bytes(take(2)?.try_into().map_err(|_| SHORT)?),
            receive: u16::from_le_bytes(take(2)?.try_into().map_err(|_| SHORT)?),
        };
        let name_len = usize::from(*take(1)?.first().ok_or(SHORT)?);
        let name = match take(name_len)? {
            [] => None,
            name => Some(Addr::decode(name).ok_or(Violation("a hello with an invalid address"))?),
        };
        let data_len = usize::from(u16::from_le_bytes(take(2)?.try_into().map_err(|_| SHORT)?));
        if data_len > MAX_USER_DATA {
            return Err(Violation("a hello with too much data"));
        }
        let data = take(data_len)?.to_vec();
        if rest.is_empty() {
            Ok(Self { handshake, kind, nonce, attempt, cookie, credits, contexts, name, data })
        } else {
            Err(Violation("a hello is too long"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello(data: Vec<u8>) -> Hello {
        Hello {
            handshake: Handshake::Connect,
            kind: EndpointKind::Rdm,
            nonce: [7; 16],
            attempt: 5,
            cookie: [9; 16],
            credits: Credits { bytes: 1, eager: 3, requests: 2, preview: 4 },
            contexts: Contexts::default(),
            name: Some(Addr::from("127.0.0.1:7471".parse::<core::net::SocketAddr>().unwrap())),
            data,
        }
    }

    proptest! {
        #[test]
        fn hellos_survive_the_wire(
            data in proptest::collection::vec(any::<u8>(), 0..=MAX_USER_DATA), handshake in proptest::sample::select(&Handshake::ALL),
            transmit in any::<u16>(), receive in any::<u16>(),
        ) {
            let contexts = Contexts { transmit, receive };
            let hello = Hello { handshake, contexts, ..hello(data) };
            let bytes = hello.encode();
            prop_assert!(bytes.len() <= MAX_LEN);
            prop_assert_eq!(Hello::parse(&bytes), Ok(hello));
        }

        #[test]
        fn any_bytes_give_a_hello_or_a_violation(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..400), ours in any::<bool>(),
        ) {
            if ours {
                let head = hello(vec![]).encode();
                let count = bytes.len().min(8);
                bytes[..count].copy_from_slice(&head[..count]);
            }
            drop(Hello::parse(&bytes));
        }
    }

    #[test]
    fn data_beyond_the_limit_is_cut() {
        let parsed = Hello::parse(&hello(vec![1; 300]).encode()).unwrap();
        assert_eq!(parsed.data.len(), MAX_USER_DATA);
    }

    #[test]
    fn other_protocols_are_refused_with_a_reason() {
        assert_eq!(Hello::parse(&[0; 64]), Err(Violation("the peer speaks another protocol")));
    }
}
