//! Buffers of numbers.

use crate::buf::{IoBuf, IoBufMut, bytes_of, bytes_of_mut};
use crate::element::Element;
use core::ops::{Deref, DerefMut};

/// Numbers as a buffer: an operation sends or fills their bytes, in the order of the machine. A
/// plain `Vec<f64>` is none, so that `vec![0; 64]` is always 64 bytes.
///
/// Lengths are in bytes: [`Completion::len`](crate::Completion::len) of eight received `f64` is 64.
///
/// ```
/// # use ofi::{EndpointType, Fabric, Info, RdmEndpoint, Typed};
/// # let info = Info::builder().provider("shm").endpoint(EndpointType::RDM).query()?.remove(0);
/// # let domain = Fabric::open(&info)?.domain(&info)?;
/// # let ep = RdmEndpoint::open(&domain, &info)?;
/// # let me = ep.peer(ep.local_addr()?)?;
/// let receive = ep.receive(Typed([0f64; 3]));
/// drop(ofi::block_on(ep.send(me, Typed(vec![0.5, 1.5, 2.5]))));
/// let (received, Typed(numbers)) = ofi::block_on(receive);
/// assert_eq!((received?.len(), numbers), (24, [0.5, 1.5, 2.5]));
/// # Ok::<(), ofi::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Typed<B>(pub B);

impl<B> Deref for Typed<B> {
    type Target = B;
    fn deref(&self) -> &B {
        &self.0
    }
}

impl<B> DerefMut for Typed<B> {
    fn deref_mut(&mut self) -> &mut B {
        &mut self.0
    }
}

macro_rules! numbers {
    ($([$($generics:tt)*] $owner:ty;)*) => {$(
        impl<T: Element, $($generics)*> IoBuf for Typed<$owner> {
            fn bytes(&self) -> &[u8] {
                bytes_of(&self.0)
            }
        }
        impl<T: Element, $($generics)*> IoBufMut for Typed<$owner> {
            fn bytes_mut(&mut self) -> &mut [u8] {
                bytes_of_mut(&mut self.0)
            }
        }
    )*};
}

numbers! {
    [] Vec<T>;
    [] Box<[T]>;
    [const N: usize] [T; N];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_numbers_are_those_in_memory() {
        let mut numbers = Typed(vec![1u32, 0x0203_0405]);
        let expected: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        assert_eq!(numbers.bytes(), expected);
        numbers.bytes_mut().copy_from_slice(&[7u32.to_ne_bytes(), 8u32.to_ne_bytes()].concat());
        assert_eq!(*numbers, [7, 8]);
        assert!(Typed(Vec::<f64>::new()).bytes().is_empty());
        assert_eq!(Typed([-1i8; 3]).bytes(), [255; 3]);
        assert_eq!(Typed(vec![1.5f64].into_boxed_slice()).bytes(), 1.5f64.to_ne_bytes());
    }
}
