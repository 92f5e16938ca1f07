//! Programs that the compiler refuses: each in `tests/wrong` is a mistake that would be undefined
//! behavior or a hang in C.

#[test]
#[cfg_attr(feature = "bytes", ignore = "the compiler lists the types of buffers, which are more")]
fn wrong_programs_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/wrong/*.rs");
}
