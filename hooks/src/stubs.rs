//! The functions in the copies of tables. One stands for each slot of each table of an object,
//! whatever its type is: all arguments of all slots are integers and pointers, the first one is the
//! object, and the callee takes none off the stack (the calling convention of x86-64).
#![allow(unsafe_code)]

use crate::call::{Frame, enter, leave};
use crate::copies::Stub;
use crate::tables::{SLOTS, TABLES};

/// Jumps to the original function of a slot of the table at that place in the object: the copy has
/// the original table's address in front.
#[unsafe(naked)]
unsafe extern "C" fn pass<const PLACE: usize, const SLOT: usize>() {
    core::arch::naked_asm!(
        "mov rax, [rdi + 8 * ({place} + 2)]",
        "mov rax, [rax - 8]",
        "jmp [rax + 8 * ({slot} + 1)]",
        place = const PLACE,
        slot = const SLOT,
    )
}

/// Calls the original function, and reports it.
#[unsafe(naked)]
unsafe extern "C" fn watch<const PLACE: usize, const SLOT: usize>() {
    core::arch::naked_asm!(
        "mov eax, {place} * 16 + {slot}",
        "jmp {common}",
        place = const PLACE,
        slot = const SLOT,
        common = sym common,
    )
}

/// Keeps the six arguments in registers below the frame pointer, asks `enter` for the original
/// function, calls it with the same arguments and ten words of the stack, as many as any slot has,
/// and returns what `leave` returns. A frame of its own leads debuggers and cancellation through.
#[unsafe(naked)]
unsafe extern "C" fn common() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, {below}",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "mov edi, eax",
        "mov rsi, rsp",
        "lea rdx, [rsp + 48]",
        "call {enter}",
        "mov r11, rax",
        "push [rbp + 88]",
        "push [rbp + 80]",
        "push [rbp + 72]",
        "push [rbp + 64]",
        "push [rbp + 56]",
        "push [rbp + 48]",
        "push [rbp + 40]",
        "push [rbp + 32]",
        "push [rbp + 24]",
        "push [rbp + 16]",
        "mov rdi, [rsp + 80]",
        "mov rsi, [rsp + 88]",
        "mov rdx, [rsp + 96]",
        "mov rcx, [rsp + 104]",
        "mov r8, [rsp + 112]",
        "mov r9, [rsp + 120]",
        "xor eax, eax",
        "call r11",
        "add rsp, 80",
        "mov rdi, rax",
        "mov rsi, rsp",
        "lea rdx, [rbp + 16]",
        "lea rcx, [rsp + 48]",
        "call {leave}",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        below = const 48 + size_of::<Frame>(),
        enter = sym enter,
        leave = sym leave,
    )
}

/// Pushed words and the frame leave the stack aligned for calls.
const _: () = assert!(size_of::<Frame>().is_multiple_of(16));

macro_rules! row {
    ($stub:ident $place:literal) => {
        [
            $stub::<$place, 0>,
            $stub::<$place, 1>,
            $stub::<$place, 2>,
            $stub::<$place, 3>,
            $stub::<$place, 4>,
            $stub::<$place, 5>,
            $stub::<$place, 6>,
            $stub::<$place, 7>,
            $stub::<$place, 8>,
            $stub::<$place, 9>,
            $stub::<$place, 10>,
            $stub::<$place, 11>,
            $stub::<$place, 12>,
            $stub::<$place, 13>,
            $stub::<$place, 14>,
            $stub::<$place, 15>,
        ]
    };
}

macro_rules! all {
    ($stub:ident) => {
        [
            row!($stub 0),
            row!($stub 1),
            row!($stub 2),
            row!($stub 3),
            row!($stub 4),
            row!($stub 5),
            row!($stub 6),
            row!($stub 7),
        ]
    };
}

/// By place in the object and slot: only the jump.
static PASS: [[Stub; SLOTS]; TABLES] = all!(pass);
/// By place in the object and slot: with the hooks.
static WATCH: [[Stub; SLOTS]; TABLES] = all!(watch);

/// The stub of a place in the object and a slot, with the hooks or without.
pub(crate) fn stub(place: usize, slot: usize, watched: bool) -> Stub {
    let stubs = if watched { &WATCH } else { &PASS };
    stubs[place][slot]
}
