#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fullpipe_fuzz::copy::frames(data));
