//! Reads a capture and prints a summary of it. BENCHMARKS.md reports the run time of this example as the
//! speed of the capture reader.

use std::env;
use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;

use fullpipe_analysis::input::capture;

fn main() -> ExitCode {
    let Some(path) = env::args_os().nth(1) else {
        eprintln!("usage: read_capture FILE");
        return ExitCode::from(2);
    };
    let read = File::open(path)
        .map_err(|e| e.to_string())
        .and_then(|file| capture::read(BufReader::new(file), None).map_err(|e| e.to_string()));
    match read {
        Ok(capture) => {
            let connections = &capture.origin.connections;
            println!("{} connections; the largest: {:?}", connections.len(), connections[0].counts);
            if let Some(packets) = capture.packets() {
                println!("{} samples, captured at {:?}", packets.samples.len(), packets.connection.side);
            }
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
