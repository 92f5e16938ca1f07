//! Tables of functions: which an object has, and what their slots are.

use core::fmt;
use ofi_abi::*;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Slots that a table has at most.
pub(crate) const SLOTS: usize = 16;
/// Words of an object before its first table.
pub(crate) const FIRST: usize = 2;
/// The tables of the largest object: its general operations and seven more.
pub(crate) const TABLES: usize = 8;

/// A kind of table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) index: usize,
    pub(crate) slots: Vec<Slot>,
}

/// What a slot returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returns {
    /// An int: 0 or a negative error number.
    Int,
    /// A count, or a negative error number.
    Size,
    /// Something that is no error number.
    Other,
}

/// A function of a table.
#[derive(Debug)]
pub(crate) struct Slot {
    table: &'static str,
    name: &'static str,
    pub(crate) index: usize,
    arguments: usize,
    pub(crate) returns: Returns,
    /// The argument at which it writes the object that it opens.
    pub(crate) opens: Option<usize>,
    /// Whether a provider may exchange the object's tables in it.
    pub(crate) changes_tables: bool,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.table, self.name)
    }
}

/// The bytes that a slot moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    None,
    /// Argument 2 is the length.
    Length,
    /// Argument 1 is an array of buffers, argument 3 its length.
    Buffers,
    /// Argument 1 is a structure that begins with the array, and has its length third.
    Message,
}

impl Slot {
    /// The name of its table.
    pub(crate) const fn table(&self) -> &'static str {
        self.table
    }

    pub(crate) fn arguments(&self) -> usize {
        self.arguments
    }

    /// Whether it closes its object.
    pub(crate) fn closes(&self) -> bool {
        self.table == "fid" && self.name == "close"
    }

    /// Whether it is fi_control(3).
    pub(crate) fn controls(&self) -> bool {
        self.table == "fid" && self.name == "control"
    }

    /// Whether programs call it in a loop until it finds something.
    pub(crate) fn polls(&self) -> bool {
        matches!(self.table, "cq" | "eq")
    }

    pub(crate) fn payload(&self) -> Payload {
        match self.table {
            "msg" | "tagged" | "rma" if self.name.ends_with("msg") => Payload::Message,
            "msg" | "tagged" | "rma" if ["recvv", "sendv", "readv", "writev"].contains(&self.name) => Payload::Buffers,
            "msg" | "tagged" | "rma" => Payload::Length,
            _ => Payload::None,
        }
    }
}

/// The arguments of a slot's type, as its text says, or of the types with names.
fn arguments(kind: &str) -> usize {
    let listed = |text: &str| {
        text.split_once("fn(")
            .and_then(|(_, rest)| rest.split_once(')'))
            .map(|(list, _)| list.split(',').filter(|argument| !argument.trim().is_empty()).count())
    };
    match kind {
        "Absent" => 1,
        "AtomicQuery" => 4,
        "ReceiveCall" | "SendCall" | "VectoredCall" => 6,
        "ReadCall" | "WriteCall" | "VectoredRmaCall" => 8,
        "ExchangeCall" => 10,
        "CombiningCall" | "RootedCall" => 11,
        text => listed(text).unwrap_or(1),
    }
}

fn returns(table: &str, name: &str, kind: &str) -> Returns {
    if kind.ends_with("c_int") || kind == "AtomicQuery" {
        Returns::Int
    } else if kind.ends_with("isize") || kind.ends_with("Call") || kind == "Absent" {
        Returns::Size
    } else {
        debug_assert!(table == "cntr" || name == "strerror" || name == "straddr", "{table}.{name}: {kind}");
        Returns::Other
    }
}

/// The argument of a slot at which it writes an object.
fn opens(table: &str, name: &str) -> Option<usize> {
    match (table, name) {
        ("fabric", "trywait") | ("domain", "query_atomic" | "query_collective" | "xpu_ctx") => None,
        ("fabric" | "domain", _) | ("av", "av_set") => Some(2),
        ("mr", "regattr") | ("ep", "tx_ctx" | "rx_ctx") | ("cm", "join") => Some(3),
        ("mr", _) => Some(7),
        _ => None,
    }
}

pub(crate) type Text = (&'static str, &'static [(&'static str, &'static str)]);

pub(crate) const FID: usize = 0;
const EP: usize = 6;
/// Every kind of table by name.
pub(crate) const TEXTS: [Text; 18] = [
    ("fid", fi_ops::SLOTS),
    ("fabric", fi_ops_fabric::SLOTS),
    ("domain", fi_ops_domain::SLOTS),
    ("mr", fi_ops_mr::SLOTS),
    ("av", fi_ops_av::SLOTS),
    ("av_set", fi_ops_av_set::SLOTS),
    ("ep", fi_ops_ep::SLOTS),
    ("cm", fi_ops_cm::SLOTS),
    ("msg", fi_ops_msg::SLOTS),
    ("rma", fi_ops_rma::SLOTS),
    ("tagged", fi_ops_tagged::SLOTS),
    ("atomic", fi_ops_atomic::SLOTS),
    ("collective", fi_ops_collective::SLOTS),
    ("eq", fi_ops_eq::SLOTS),
    ("cq", fi_ops_cq::SLOTS),
    ("cntr", fi_ops_cntr::SLOTS),
    ("wait", fi_ops_wait::SLOTS),
    ("poll", fi_ops_poll::SLOTS),
];

/// Every kind of table.
pub(crate) fn tables() -> &'static [Table] {
    static ALL: OnceLock<Vec<Table>> = OnceLock::new();
    ALL.get_or_init(|| TEXTS.iter().enumerate().map(|(index, text)| table(index, *text)).collect())
}

fn table(index: usize, (table, slots): Text) -> Table {
    let slot = |(index, (name, kind)): (usize, &(&'static str, &'static str))| Slot {
        table,
        name,
        index,
        arguments: arguments(kind),
        returns: returns(table, name, kind),
        opens: opens(table, name),
        // Enabling, binding and connecting decide what an endpoint can do.
        changes_tables: matches!((table, *name), ("fid", "bind" | "control") | ("cm", _) | ("ep", "setopt")),
    };
    Table { index, slots: slots.iter().enumerate().map(slot).collect() }
}

#[cfg(test)]
pub(crate) fn slot_named(table: &str, name: &str) -> &'static Slot {
    let all = tables().iter().flat_map(|table| &table.slots);
    all.into_iter().find(|slot| slot.table == table && slot.name == name).expect("it exists")
}

/// The kinds of tables of an object behind its general operations, in order. Endpoints of providers
/// for interfaces before 1.9 have no collective operations.
pub(crate) fn tables_of(class: usize, owner: &Owner) -> &'static [usize] {
    match class {
        FI_CLASS_FABRIC => &[1],
        FI_CLASS_DOMAIN => &[2, 3],
        FI_CLASS_EP | FI_CLASS_SEP | FI_CLASS_TX_CTX | FI_CLASS_RX_CTX | FI_CLASS_SRX_CTX => {
            if owner.has_collectives {
                &[EP, 7, 8, 9, 10, 11, 12]
            } else {
                &[EP, 7, 8, 9, 10, 11]
            }
        }
        FI_CLASS_STX_CTX => &[EP],
        FI_CLASS_PEP => &[EP, 7],
        FI_CLASS_AV => &[4],
        FI_CLASS_AV_SET => &[5],
        FI_CLASS_EQ => &[13],
        FI_CLASS_CQ => &[14],
        FI_CLASS_CNTR => &[15],
        FI_CLASS_WAIT => &[16],
        FI_CLASS_POLL => &[17],
        _ => &[],
    }
}

/// What an object is, for people.
pub(crate) fn class_name(class: usize) -> &'static str {
    match class {
        FI_CLASS_FABRIC => "fabric",
        FI_CLASS_DOMAIN => "domain",
        FI_CLASS_EP => "endpoint",
        FI_CLASS_SEP => "scalable endpoint",
        FI_CLASS_RX_CTX => "receive context",
        FI_CLASS_SRX_CTX => "shared receive context",
        FI_CLASS_TX_CTX => "transmit context",
        FI_CLASS_STX_CTX => "shared transmit context",
        FI_CLASS_PEP => "passive endpoint",
        FI_CLASS_AV => "address vector",
        FI_CLASS_AV_SET => "address vector set",
        FI_CLASS_MR => "memory region",
        FI_CLASS_EQ => "event queue",
        FI_CLASS_CQ => "completion queue",
        FI_CLASS_CNTR => "counter",
        FI_CLASS_WAIT => "wait set",
        FI_CLASS_POLL => "poll set",
        FI_CLASS_MC => "multicast group",
        _ => "object",
    }
}

/// Providers with totals of their own; further ones share the last's.
pub(crate) const OWNERS: usize = 32;
static OWNED: Mutex<Vec<&'static Owner>> = Mutex::new(Vec::new());

/// The provider of hooked objects.
#[derive(Debug)]
pub(crate) struct Owner {
    name: String,
    has_collectives: bool,
    index: usize,
}

impl Owner {
    #[cfg(test)]
    pub(crate) fn new(name: &str, has_collectives: bool) -> Self {
        Self { name: name.to_owned(), has_collectives, index: 0 }
    }

    /// The provider of that name, which lives as long as the process.
    pub(crate) fn named(name: &str, has_collectives: bool) -> &'static Self {
        let mut all = OWNED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().find(|owner| owner.name == name && owner.has_collectives == has_collectives);
        if let Some(known) = known {
            return known;
        }
        let index = all.len().min(OWNERS - 1);
        let owner: &'static Self = Box::leak(Box::new(Self { name: name.to_owned(), has_collectives, index }));
        all.push(owner);
        owner
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// All of them, by their indexes.
    pub(crate) fn all() -> Vec<&'static Self> {
        OWNED.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_headers() {
        assert!(tables().iter().all(|table| table.slots.len() <= SLOTS));
        let longest = tables().iter().flat_map(|table| &table.slots).map(Slot::arguments).max();
        assert_eq!(longest, Some(16));
        let slot = slot_named("atomic", "compwritev");
        assert_eq!((slot.arguments(), slot.returns), (16, Returns::Size));
        assert_eq!(slot_named("mr", "reg").arguments(), 9);
        assert_eq!(slot_named("fid", "control").arguments(), 3);
        assert_eq!(slot_named("fid", "close").returns, Returns::Int);
        assert_eq!(slot_named("cntr", "read").returns, Returns::Other);
        assert_eq!(slot_named("cntr", "wait").returns, Returns::Int);
        assert_eq!(slot_named("msg", "sendmsg").payload(), Payload::Message);
        assert_eq!(slot_named("rma", "writev").payload(), Payload::Buffers);
        assert_eq!(slot_named("tagged", "injectdata").payload(), Payload::Length);
        let opening = tables().iter().flat_map(|table| &table.slots).filter(|slot| slot.opens.is_some());
        assert!(opening.clone().all(|slot| slot.opens.is_some_and(|at| at < slot.arguments())));
        assert_eq!(opening.count(), 5 + 9 + 1 + 3 + 2 + 1);
    }
}
