#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    dunlin_fuzz::operations::run(input);
});
