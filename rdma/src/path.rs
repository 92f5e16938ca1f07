//! InfiniBand routing data: `struct ibv_path_record` and `struct ibv_path_data` of
//! `<infiniband/sa.h>` as values. `ai_route` holds them as bytes, since other transports may use
//! another format.

use crate::error::Result;
use crate::ib::{IbAddr, part};
use bitflags::bitflags;
use ofi_os::fallible;
use std::ops::Range;

/// Bytes of a `struct ibv_path_record`.
pub const PATH_RECORD_LEN: usize = 64;
/// Bytes of a `struct ibv_path_data`.
pub const PATH_DATA_LEN: usize = 72;

bitflags! {
    /// Uses of a path (`IBV_PATH_FLAG_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct PathFlags: u32 {
        /// For management datagrams.
        const GMP = 1 << 0;
        /// The path to use.
        const PRIMARY = 1 << 1;
        /// The path to use when the primary one fails.
        const ALTERNATE = 1 << 2;
        /// From source to destination.
        const OUTBOUND = 1 << 3;
        /// From destination to source.
        const INBOUND = 1 << 4;
        /// From destination to source, by the same path.
        const INBOUND_REVERSE = 1 << 5;
        /// Both directions by one path.
        const BIDIRECTIONAL = Self::OUTBOUND.bits() | Self::INBOUND_REVERSE.bits();
    }
}

/// A path between two ports. Numbers are in host byte order; packed fields keep the packing of the
/// C structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PathRecord {
    /// Service identifier.
    pub service_id: u64,
    /// GID of the destination.
    pub dgid: [u8; 16],
    /// GID of the source.
    pub sgid: [u8; 16],
    /// Local identifier of the destination.
    pub dlid: u16,
    /// Local identifier of the source.
    pub slid: u16,
    /// Bits 27 to 8: flow label; 7 to 0: hop limit.
    pub flowlabel_hoplimit: u32,
    /// Traffic class.
    pub tclass: u8,
    /// Bit 7: the path is reversible; 6 to 0: number of paths.
    pub reversible_numpath: u8,
    /// Partition key.
    pub pkey: u16,
    /// Bits 15 to 4: quality-of-service class; 3 to 0: service level.
    pub qosclass_sl: u16,
    /// Bits 7 and 6: selector; 5 to 0: code of the MTU.
    pub mtu: u8,
    /// Bits 7 and 6: selector; 5 to 0: code of the rate.
    pub rate: u8,
    /// Bits 7 and 6: selector; 5 to 0: code of the packet lifetime.
    pub packetlifetime: u8,
    /// Preference among paths; 0 is the best.
    pub preference: u8,
}

impl PathRecord {
    /// Encodes as a `struct ibv_path_record`.
    pub fn encode(&self) -> [u8; PATH_RECORD_LEN] {
        let mut out = [0; PATH_RECORD_LEN];
        out[..8].copy_from_slice(&self.service_id.to_be_bytes());
        out[8..24].copy_from_slice(&self.dgid);
        out[24..40].copy_from_slice(&self.sgid);
        out[40..42].copy_from_slice(&self.dlid.to_be_bytes());
        out[42..44].copy_from_slice(&self.slid.to_be_bytes());
        out[44..48].copy_from_slice(&self.flowlabel_hoplimit.to_be_bytes());
        out[48] = self.tclass;
        out[49] = self.reversible_numpath;
        out[50..52].copy_from_slice(&self.pkey.to_be_bytes());
        out[52..54].copy_from_slice(&self.qosclass_sl.to_be_bytes());
        out[54..58].copy_from_slice(&[self.mtu, self.rate, self.packetlifetime, self.preference]);
        out
    }

    /// Reads a `struct ibv_path_record`; `None` if it is too short.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PATH_RECORD_LEN] = bytes.first_chunk()?;
        Some(Self {
            service_id: u64::from_be_bytes(part(bytes, 0)?),
            dgid: part(bytes, 8)?,
            sgid: part(bytes, 24)?,
            dlid: u16::from_be_bytes(part(bytes, 40)?),
            slid: u16::from_be_bytes(part(bytes, 42)?),
            flowlabel_hoplimit: u32::from_be_bytes(part(bytes, 44)?),
            tclass: bytes[48],
            reversible_numpath: bytes[49],
            pkey: u16::from_be_bytes(part(bytes, 50)?),
            qosclass_sl: u16::from_be_bytes(part(bytes, 52)?),
            mtu: bytes[54],
            rate: bytes[55],
            packetlifetime: bytes[56],
            preference: bytes[57],
        })
    }

    /// Whether the record has both GIDs and both LIDs, so that a connection can use it. An
    /// incomplete record only restricts the answer of a subnet administrator.
    pub fn is_complete(&self) -> bool {
        self.sgid != [0; 16] && self.dgid != [0; 16] && self.slid != 0 && self.dlid != 0
    }

    /// The address of the end with this GID; `None` for a zero GID. The service is the record's, or
    /// else that of the port space.
    pub(crate) fn end(&self, gid: [u8; 16], port_space: u16) -> Option<IbAddr> {
        let mut addr = IbAddr::new(gid, port_space, 0);
        if self.service_id != 0 {
            (addr.service_id, addr.service_mask) = (self.service_id, !0);
        }
        if self.pkey != 0 {
            addr.pkey = self.pkey;
        }
        (gid != [0; 16]).then_some(addr)
    }
}

/// A path and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PathData {
    /// The use of the path.
    pub flags: PathFlags,
    /// The path.
    pub path: PathRecord,
}

impl PathData {
    /// Encodes as a `struct ibv_path_data`.
    pub fn encode(&self) -> [u8; PATH_DATA_LEN] {
        let mut out = [0; PATH_DATA_LEN];
        out[..4].copy_from_slice(&self.flags.bits().to_ne_bytes());
        out[8..].copy_from_slice(&self.path.encode());
        out
    }

    /// Reads a `struct ibv_path_data`; `None` if it is too short.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let flags = PathFlags::from_bits_retain(u32::from_ne_bytes(part(bytes, 0)?));
        Some(Self { flags, path: PathRecord::decode(bytes.get(8..)?)? })
    }
}

/// Encodes paths for `ai_route`.
pub fn encode(paths: &[PathData]) -> Vec<u8> {
    paths.iter().flat_map(PathData::encode).collect()
}

/// The routing data with only those paths that `keep` accepts, encoded anew; as it is if it is in
/// another format.
///
/// # Errors
/// [`Kind::Memory`](crate::Kind::Memory).
pub(crate) fn filtered(route: &[u8], keep: impl Fn(&PathData) -> bool) -> Result<Vec<u8>> {
    let Some(paths) = entries(route) else { return Ok(fallible::bytes(route)?) };
    let mut out = fallible::room(route.len() / PATH_RECORD_LEN * PATH_DATA_LEN)?;
    for path in paths.filter(keep) {
        out.extend_from_slice(&path.encode());
    }
    Ok(out)
}

/// Decodes an `ai_route`: an array of `struct ibv_path_data`, or of `struct ibv_path_record`, whose
/// records become bidirectional primary paths. `None` if its length, flags or reserved bytes fit
/// neither.
pub fn decode(route: &[u8]) -> Option<Vec<PathData>> {
    entries(route).map(Iterator::collect)
}

/// The paths of an `ai_route`, as [`decode`] reads them.
pub(crate) fn entries(route: &[u8]) -> Option<impl Iterator<Item = PathData> + use<'_>> {
    let formats: [(usize, Reader); 2] = [(PATH_DATA_LEN, read_data), (PATH_RECORD_LEN, read_record)];
    let fits = |(size, read): &(usize, Reader)| {
        let whole = !route.is_empty() && route.len().is_multiple_of(*size);
        whole && route.chunks_exact(*size).all(|bytes| read(bytes).is_some())
    };
    let (size, read) = formats.into_iter().find(fits)?;
    Some(route.chunks_exact(size).filter_map(read))
}

/// Reads an entry; `None` if its flags or reserved bytes are not of the format.
type Reader = fn(&[u8]) -> Option<PathData>;

fn read_data(bytes: &[u8]) -> Option<PathData> {
    let known = |data: &PathData| PathFlags::all().contains(data.flags) && zero(bytes, 4..8) && zero(bytes, 66..72);
    PathData::decode(bytes).filter(known)
}

fn read_record(bytes: &[u8]) -> Option<PathData> {
    let flags = PathFlags::GMP | PathFlags::PRIMARY | PathFlags::BIDIRECTIONAL;
    let path = PathRecord::decode(bytes).filter(|_| zero(bytes, 58..64))?;
    Some(PathData { flags, path })
}

fn zero(bytes: &[u8], range: Range<usize>) -> bool {
    bytes.get(range).is_some_and(|part| part.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn records_become_primary_paths() {
        let path = PathRecord { dgid: [1; 16], sgid: [2; 16], pkey: 0x8001, ..PathRecord::default() };
        let found = decode(&[path.encode(), path.encode()].concat()).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].path, path);
        let flags = found[0].flags;
        assert!(flags.contains(PathFlags::PRIMARY | PathFlags::BIDIRECTIONAL));
        assert_eq!(decode(&encode(&found)), Some(found));
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[0; 63]), None);
        assert_eq!(decode(&[0; 80]), None);
        // Nine records are as long as eight entries with flags.
        assert_eq!(decode(&path.encode().repeat(9)).map(|paths| paths.len()), Some(9));
        assert_eq!(decode(&encode(&[PathData { flags, path }; 8])).map(|paths| paths.len()), Some(8));
        // Data of another transport.
        assert_eq!(decode(&[b'x'; 64]), None);
        assert_eq!(decode(&[b'x'; 72]), None);
    }

    #[test]
    fn a_path_without_identifiers_leads_nowhere() {
        let mut path = PathRecord { dgid: [1; 16], sgid: [2; 16], dlid: 3, slid: 4, ..PathRecord::default() };
        assert!(path.is_complete());
        path.slid = 0;
        assert!(!path.is_complete());
    }

    proptest! {
        #[test]
        fn bytes_are_read_as_written(bytes in prop::collection::vec(any::<u8>(), PATH_DATA_LEN)) {
            let mut bytes = bytes;
            let path = PathData::decode(&bytes).unwrap();
            // Reserved bytes are not kept.
            bytes[4..8].fill(0);
            bytes[66..].fill(0);
            prop_assert_eq!(path.encode().to_vec(), bytes);
        }
    }
}
