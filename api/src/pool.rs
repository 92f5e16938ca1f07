//! Pools of buffers.

use crate::buf::{IoBuf, IoBufMut};
use core::fmt;
use core::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// A pool of buffers of one size. A buffer that is dropped comes back to it, wherever that happens:
/// also when the operation that owns it is dropped and ends later. Clones are handles of the same
/// pool.
///
/// A program that exchanges large messages saves the allocations, and the pages of the buffers stay
/// mapped. The providers of this library need no local buffer to be registered (FI_MR_LOCAL).
///
/// ```
/// # use ofi::{BufferPool, EndpointType, Fabric, Info, RdmEndpoint};
/// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// # let domain = Fabric::open(&info)?.domain(&info)?;
/// # let ep = RdmEndpoint::open(&domain, &info)?;
/// # let me = ep.peer(ep.local_addr()?)?;
/// let pool = BufferPool::new(1 << 20, 4); // keeps four buffers of 1 MiB at most
/// let receive = ep.receive(pool.take());
/// let mut out = pool.take();
/// out[..5].copy_from_slice(b"hello");
/// drop(ofi::block_on(ep.send(me, out)));
/// let (received, buf) = ofi::block_on(receive);
/// assert_eq!((received?.len(), &buf[..5]), (1 << 20, &b"hello"[..]));
/// drop(buf);
/// assert_eq!(pool.spare(), 2);
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BufferPool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    size: usize,
    most: usize,
    spare: Mutex<Vec<Box<[u8]>>>,
}

impl BufferPool {
    /// An empty pool of buffers of `size` bytes. It keeps at most `most` buffers that came back.
    pub fn new(size: usize, most: usize) -> Self {
        Self(Arc::new(Inner { size, most, spare: Mutex::default() }))
    }

    /// A buffer: one that came back, with the bytes that it had, or a new one of zeros.
    pub fn take(&self) -> PooledBuf {
        let spare = self.0.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = spare.unwrap_or_else(|| vec![0; self.0.size].into_boxed_slice());
        PooledBuf { bytes, pool: self.0.clone() }
    }

    /// How many buffers that came back the pool keeps.
    pub fn spare(&self) -> usize {
        self.0.spare.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// A buffer of a [`BufferPool`], to which it returns when it is dropped. It dereferences to its
/// bytes.
///
/// ```
/// let pool = ofi::BufferPool::new(8, 1);
/// let mut buf = pool.take();
/// buf.copy_from_slice(b"8 bytes.");
/// drop(buf);
/// assert_eq!(&pool.take()[..], b"8 bytes.", "the same buffer again");
/// ```
pub struct PooledBuf {
    bytes: Box<[u8]>,
    pool: Arc<Inner>,
}

impl fmt::Debug for PooledBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledBuf").field("len", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        let bytes = core::mem::take(&mut self.bytes);
        let mut spare = self.pool.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < self.pool.most {
            spare.push(bytes);
        }
    }
}

impl Deref for PooledBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for PooledBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl IoBuf for PooledBuf {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl IoBufMut for PooledBuf {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}
