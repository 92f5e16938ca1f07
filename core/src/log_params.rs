//! Parameters of the log. They stand apart from it, because reading a parameter may log.

use crate::log::Level;
use crate::param::{Param, ParamKind};

/// The log level.
pub const LOG_LEVEL: Param = Param {
    name: "FI_LOG_LEVEL",
    kind: ParamKind::String,
    help: "What is logged: none, error, warn, trace, info, debug (default: error)",
};
/// Providers that log.
pub const LOG_PROV: Param = Param {
    name: "FI_LOG_PROV",
    kind: ParamKind::String,
    help: "Log only for these providers, separated by commas; with ^ in front, for all others (default: all)",
};
/// Subsystems that log.
pub const LOG_SUBSYS: Param = Param {
    name: "FI_LOG_SUBSYS",
    kind: ParamKind::String,
    help: "Log only these parts: core, fabric, domain, ep_ctrl, ep_data, av, cq, eq, mr, cntr (default: all)",
};
/// Interval of rate-limited messages.
pub const LOG_INTERVAL: Param = Param {
    name: "FI_LOG_INTERVAL",
    kind: ParamKind::Int,
    help: "Milliseconds between messages that are rate-limited (default: 2000)",
};
/// The parameters of logging.
pub const PARAMS: [Param; 4] = [LOG_LEVEL, LOG_PROV, LOG_SUBSYS, LOG_INTERVAL];

/// The level that the environment selects; `None` for no messages.
pub fn wanted() -> Option<Level> {
    LOG_LEVEL.text().map_or(Some(Level::Error), |name| Level::named(&name))
}
