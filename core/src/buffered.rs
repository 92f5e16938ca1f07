//! What callers of 1.x may ask for: buffered receives (FI_BUFFERED_RECV) and variable messages
//! (FI_VARIABLE_MSG), fi_getinfo(3) and fi_msg(3) of 1.17. Both make an endpoint report a message
//! before a buffer takes it; every provider with links serves both alike.

use crate::caps::{Caps, Mode};
use crate::info::{Hints, Info, SHARED_CONTEXT};
use crate::kinds::{EndpointType, Version};
use crate::reason::Reason;
use std::borrow::Cow;

/// FI_VARIABLE_MSG, whose bit means FI_EXACT_DIRECTED_RECV in later interfaces.
const VARIABLE_MSG: Caps = Caps::EXACT_DIRECTED_RECV;

/// FI_BUFFERED_RECV is a mode of the interface from 1.7 to 1.22; in later ones the bit is free.
fn knows_buffered(api: Version) -> bool {
    (Version::new(1, 7)..Version::new(2, 0)).contains(&api)
}

/// FI_VARIABLE_MSG is a capability of the interface from 1.7 to 1.20.
fn knows_variable(api: Version) -> bool {
    (Version::new(1, 7)..Version::new(1, 21)).contains(&api)
}

/// Whether endpoints of this info can report messages before a buffer takes them: reliable ones
/// with receive contexts of their own.
fn is_bufferable(info: &Info) -> bool {
    matches!(info.ep.kind, EndpointType::RDM | EndpointType::MSG) && info.ep.rx_ctx_cnt != SHARED_CONTEXT
}

impl Info {
    /// Whether a caller of this interface version opens endpoints with buffered receives.
    pub fn is_buffered(&self, api: Version) -> bool {
        let asks = knows_buffered(api) && self.mode.contains(Mode::BUFFERED_RECV)
            || knows_variable(api) && self.caps.contains(VARIABLE_MSG);
        asks && is_bufferable(self)
    }
}

/// What the hints of a caller of 1.x ask for beyond what today's interface has.
pub(crate) struct Legacy {
    buffered: bool,
    variable: bool,
}

impl Legacy {
    /// Takes the requests of former interfaces out of the hints.
    ///
    /// # Errors
    /// FI_VARIABLE_MSG without FI_MSG and FI_TAGGED.
    pub(crate) fn split(hints: &Hints, api: Version) -> Result<(Self, Cow<'_, Hints>), Reason> {
        // A program that permits every mode asks for none: it does not expect one that changes what
        // its receives mean.
        const UNDEFINED: Mode = Mode::from_bits_retain((1 << 51) - 1);
        let asks = hints.mode.contains(Mode::BUFFERED_RECV) && !hints.mode.intersects(UNDEFINED);
        let of_rx = hints.rx.as_ref().is_some_and(|rx| rx.caps.contains(VARIABLE_MSG));
        let variable = knows_variable(api) && (hints.caps.contains(VARIABLE_MSG) || of_rx);
        let legacy = Self { buffered: asks && knows_buffered(api), variable };
        if !variable {
            return Ok((legacy, Cow::Borrowed(hints)));
        }
        let mut rest = hints.clone();
        rest.caps -= VARIABLE_MSG;
        if let Some(rx) = &mut rest.rx {
            rx.caps -= VARIABLE_MSG;
        }
        if !rest.caps.intersects(Caps::MSG | Caps::TAGGED) {
            return Err(Reason::new("caps", "FI_VARIABLE_MSG", "it together with FI_MSG or FI_TAGGED"));
        }
        Ok((legacy, Cow::Owned(rest)))
    }

    /// Adds to the info what was asked for, if its endpoints have it.
    ///
    /// # Errors
    /// FI_VARIABLE_MSG of other endpoints: capabilities are demands, modes are permissions.
    pub(crate) fn grant(&self, info: &mut Info) -> Result<(), Reason> {
        let bufferable = is_bufferable(info);
        if self.buffered && bufferable {
            info.mode |= Mode::BUFFERED_RECV;
            info.rx.mode |= Mode::BUFFERED_RECV;
        }
        if self.variable {
            if !bufferable {
                let offered = "it for reliable endpoints with receive contexts of their own";
                return Err(Reason::new("caps", "FI_VARIABLE_MSG", offered));
            }
            info.caps |= VARIABLE_MSG;
            info.rx.caps |= VARIABLE_MSG;
        }
        Ok(())
    }
}
