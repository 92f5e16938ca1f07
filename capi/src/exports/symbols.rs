//! The seventeen exported functions, in all symbol versions up to FABRIC_1.9. The Rust functions
//! stay hidden; assembly stubs carry the versioned names, because no name may be exported without a
//! version.

use crate::exports::{compat, getinfo, logging, param, tostr};

macro_rules! export {
    ($($target:path => $($name:literal $at:literal $node:literal),+;)*) => {$($(
        core::arch::global_asm!(
            concat!(".globl ofi.", $name, ".", $node),
            concat!(".type ofi.", $name, ".", $node, ",@function"),
            concat!("ofi.", $name, ".", $node, ":"),
            "jmp {target}",
            concat!(".symver ofi.", $name, ".", $node, ", ", $name, $at, "FABRIC_", $node, ", remove"),
            target = sym $target,
        );
    )+)*};
}

export! {
    getinfo::fi_getinfo => "fi_getinfo" "@@" "1.9";
    compat::getinfo_1_8 => "fi_getinfo" "@" "1.8";
    compat::getinfo_1_7 => "fi_getinfo" "@" "1.7";
    compat::getinfo_1_3 => "fi_getinfo" "@" "1.3";
    compat::getinfo_1_2 => "fi_getinfo" "@" "1.2";
    compat::getinfo_1_1 => "fi_getinfo" "@" "1.1";
    compat::getinfo_1_0 => "fi_getinfo" "@" "1.0";
    getinfo::fi_freeinfo => "fi_freeinfo" "@@" "1.9", "fi_freeinfo" "@" "1.8", "fi_freeinfo" "@" "1.7", "fi_freeinfo" "@" "1.3",
        "fi_freeinfo" "@" "1.2", "fi_freeinfo" "@" "1.1", "fi_freeinfo" "@" "1.0";
    getinfo::fi_dupinfo => "fi_dupinfo" "@@" "1.9";
    compat::dupinfo_1_8 => "fi_dupinfo" "@" "1.8";
    compat::dupinfo_1_7 => "fi_dupinfo" "@" "1.7";
    compat::dupinfo_1_3 => "fi_dupinfo" "@" "1.3";
    compat::dupinfo_1_2 => "fi_dupinfo" "@" "1.2";
    compat::dupinfo_1_1 => "fi_dupinfo" "@" "1.1";
    compat::dupinfo_1_0 => "fi_dupinfo" "@" "1.0";
    getinfo::fi_fabric => "fi_fabric" "@@" "1.1";
    compat::fabric_1_0 => "fi_fabric" "@" "1.0";
    getinfo::fi_fabric2 => "fi_fabric2" "@@" "1.8";
    getinfo::fi_version => "fi_version" "@@" "1.0";
    getinfo::fi_strerror => "fi_strerror" "@@" "1.0";
    tostr::fi_tostr => "fi_tostr" "@@" "1.0";
    tostr::fi_tostr_r => "fi_tostr_r" "@@" "1.4";
    getinfo::fi_open => "fi_open" "@@" "1.5";
    logging::fi_log_enabled => "fi_log_enabled" "@@" "1.0";
    logging::fi_log_ready => "fi_log_ready" "@@" "1.6";
    logging::fi_log => "fi_log" "@@" "1.0";
    param::fi_param_define => "fi_param_define" "@@" "1.0";
    param::fi_param_get => "fi_param_get" "@@" "1.0";
    param::fi_getparams => "fi_getparams" "@@" "1.0";
    param::fi_freeparams => "fi_freeparams" "@@" "1.0";
}
