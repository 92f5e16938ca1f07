//! A call through a stub: what the program called, the original function, and the reports.
#![allow(unsafe_code)]

use crate::chosen::{Chosen, chosen};
use crate::copies::{Copied, copied, exchange, word};
use crate::hook::{Call, Outcome};
use crate::tables::{FIRST, Owner, Payload, Returns, Slot};
use ofi_abi::FI_ALIAS;
use ofi_core::Errno;

/// What a stub keeps on its stack during the call.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Frame {
    copied: Option<&'static Copied>,
    slot: usize,
    class: usize,
    began: u64,
}

/// Arguments in registers.
const REGISTERS: usize = 6;

/// Begins a call: returns the original function.
///
/// # Safety
/// A stub calls it, with the registers' arguments and a place for the frame.
pub(crate) unsafe extern "C" fn enter(id: u32, registers: *const usize, frame: *mut Frame) -> usize {
    let (place, slot) = (id as usize / 16, id as usize % 16);
    // SAFETY: the stub's registers; the first argument of every slot is the object.
    let object = unsafe { *registers };
    // SAFETY: the program passes a living object, whose table is there.
    let table = unsafe { word(object + 8 * (FIRST + place)) };
    let copied = copied(table);
    let function = match copied {
        Some(copied) => copied.function(slot),
        // The provider has exchanged the table since the program has read it.
        // SAFETY: it is a table of the kind that has the slot.
        None => unsafe { word(table + 8 * (slot + 1)) },
    };
    // SAFETY: as above: a class begins an object.
    let class = unsafe { word(object) };
    let began = if chosen().is_some_and(|chosen| chosen.is_timed) { ofi_os::clock::now().nanos() } else { 0 };
    // SAFETY: the stub has the place.
    unsafe { frame.write(Frame { copied, slot, class, began }) };
    function
}

/// Ends a call: reports it, hooks what it has opened, and returns the result.
///
/// # Safety
/// A stub calls it, with the registers' and the caller's stack arguments, and the frame of
/// [`enter`].
pub(crate) unsafe extern "C" fn leave(
    result: usize,
    registers: *const usize,
    stack: *const usize,
    frame: *const Frame,
) -> usize {
    // SAFETY: the stub's frame.
    let frame = unsafe { &*frame };
    let (Some(copied), Some(chosen)) = (frame.copied, chosen()) else { return result };
    let Some(slot) = copied.table.slots.get(frame.slot) else { return result };
    let mut arguments = [0; 16];
    for (index, argument) in arguments.iter_mut().enumerate().take(slot.arguments()) {
        let from = if index < REGISTERS { registers } else { stack.wrapping_sub(REGISTERS) };
        // SAFETY: the program has passed as many arguments as the slot has.
        *argument = unsafe { *from.wrapping_add(index) };
    }
    let outcome = outcome(slot.returns, result);
    if !chosen.hooks.is_empty() {
        // SAFETY: the arguments are the slot's, which the program keeps until the call returns.
        unsafe { report(chosen, copied, slot, arguments, outcome, frame) };
    }
    if matches!(outcome, Outcome::Good(_)) {
        // SAFETY: as above, and the call has succeeded.
        unsafe { follow(chosen, copied.owner, slot, &arguments) };
    }
    result
}

/// What a result means. An int has only half of the register.
fn outcome(returns: Returns, result: usize) -> Outcome {
    #[allow(clippy::cast_possible_truncation, reason = "the other half has no meaning")]
    let signed = match returns {
        Returns::Int => i64::from(result as u32 as i32),
        Returns::Size => result as i64,
        Returns::Other => return Outcome::Good(result as u64),
    };
    match u64::try_from(signed) {
        Ok(value) => Outcome::Good(value),
        Err(_) => Outcome::Failed(Errno::from_raw(i32::try_from(-i128::from(signed)).unwrap_or(0))),
    }
}

/// Reports to the hooks.
///
/// # Safety
/// The arguments are those of a call of the slot that is about to return.
unsafe fn report(
    chosen: &Chosen,
    copied: &Copied,
    slot: &'static Slot,
    arguments: [usize; 16],
    outcome: Outcome,
    frame: &Frame,
) {
    let took = if chosen.is_timed { ofi_os::clock::now().nanos().saturating_sub(frame.began) } else { 0 };
    // SAFETY: this function's contract.
    let bytes = if matches!(outcome, Outcome::Good(_)) { unsafe { bytes(slot.payload(), &arguments) } } else { 0 };
    let (owner, object, class) = (copied.owner, arguments[0], frame.class);
    let call = Call { owner, slot, object, class, arguments, bytes, outcome, took };
    chosen.hooks.iter().for_each(|hook| hook.called(&call));
}

/// The bytes of a call.
///
/// # Safety
/// The arguments are those of a call with such a payload, which has succeeded.
unsafe fn bytes(payload: Payload, arguments: &[usize; 16]) -> u64 {
    let (buffers, count) = match payload {
        Payload::None => return 0,
        Payload::Length => return arguments[2] as u64,
        Payload::Buffers => (arguments[1], arguments[3]),
        Payload::Message => {
            // SAFETY: the structure begins with the array.
            let array = unsafe { word(arguments[1]) };
            // SAFETY: its third member is the length.
            (array, unsafe { word(arguments[1] + 16) })
        }
    };
    // SAFETY: the array has as many buffers, each an address and a length.
    (0..count).map(|index| unsafe { word(buffers + 16 * index + 8) } as u64).sum()
}

/// Hooks what a successful call has opened, and tables that it has exchanged.
///
/// # Safety
/// The arguments are those of a call of the slot, which has succeeded.
unsafe fn follow(chosen: &Chosen, owner: &'static Owner, slot: &Slot, arguments: &[usize; 16]) {
    if let Some(place) = slot.opens.map(|at| arguments[at]).filter(|place| *place != 0) {
        // SAFETY: the call has written the object there.
        let object = unsafe { word(place) };
        // SAFETY: as above.
        unsafe { hook(chosen, owner, object) };
    }
    // An int has only half of the register.
    let command = arguments[1] as u64 & u64::from(u32::MAX);
    if slot.controls() && command == u64::from(FI_ALIAS.cast_unsigned()) && arguments[2] != 0 {
        // SAFETY: a fi_alias begins with the place of the alias.
        let place = unsafe { word(arguments[2]) };
        // SAFETY: the call has written the alias there.
        let alias = unsafe { word(place) };
        // SAFETY: as above.
        unsafe { hook(chosen, owner, alias) };
    }
    if slot.changes_tables {
        // SAFETY: these calls leave the object open.
        unsafe { exchange(owner, arguments[0]) };
    }
}

/// Hooks an object that was opened.
///
/// # Safety
/// `object` is 0 or a living object of the provider.
pub(crate) unsafe fn hook(chosen: &Chosen, owner: &'static Owner, object: usize) {
    if object == 0 {
        return;
    }
    // SAFETY: this function's contract.
    let class = unsafe { word(object) };
    // SAFETY: as above.
    unsafe { exchange(owner, object) };
    chosen.hooks.iter().for_each(|hook| hook.opened(owner, object, class));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_register_is_an_int() {
        assert_eq!(outcome(Returns::Int, 0xdead_beef_0000_0000), Outcome::Good(0));
        assert_eq!(outcome(Returns::Int, 0x0000_0001_ffff_fff5), Outcome::Failed(Errno::AGAIN));
        assert_eq!(outcome(Returns::Size, usize::MAX - 10), Outcome::Failed(Errno::AGAIN));
        assert_eq!(outcome(Returns::Size, 3), Outcome::Good(3));
        assert_eq!(outcome(Returns::Other, usize::MAX), Outcome::Good(u64::MAX));
    }

    #[test]
    fn bytes_of_a_call_are_those_of_its_buffers() {
        let buffers = [[1usize, 10], [2, 20]];
        let array = buffers.as_ptr().expose_provenance();
        let message = [array, 0, 2];
        let mut arguments = [0; 16];
        arguments[1..4].copy_from_slice(&[array, 7, 2]);
        // SAFETY: arguments of such a call.
        assert_eq!(unsafe { bytes(Payload::None, &arguments) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { bytes(Payload::Length, &arguments) }, 7);
        // SAFETY: as above.
        assert_eq!(unsafe { bytes(Payload::Buffers, &arguments) }, 30);
        arguments[1] = message.as_ptr().expose_provenance();
        // SAFETY: as above.
        assert_eq!(unsafe { bytes(Payload::Message, &arguments) }, 30);
    }
}
