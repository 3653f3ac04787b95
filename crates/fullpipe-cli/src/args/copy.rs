//! Command-line arguments of `fullpipe copy` and `fullpipe relay`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use fullpipe::units::{Bytes, Duration, Probability, Rate};

use super::OutputArgs;

const COPY_EXAMPLE: &str = "\
Examples:
  fullpipe copy backup.tar ny.example.com:in/
  fullpipe relay key
  fullpipe copy backup.tar relay://ny.example.com/in/ --peer sha256:...
  fullpipe copy logs relay://ny.example.com/logs --peer sha256:... --connections 8
  fullpipe copy logs relay://ny.example.com/logs --peer sha256:... --limit 100mbit
  fullpipe copy backup.tar ny.example.com:in/ --link 500mbit --plan
  pg_dump db | fullpipe copy - ny.example.com:in/db.sql
  fullpipe copy relay://ny.example.com/logs backup/ --peer sha256:...
  fullpipe copy ny.example.com:in/db.sql .
  fullpipe copy ny.example.com:in/db.sql - | psql db
  feed --resume-from 3 | fullpipe copy - relay://ny.example.com/feed --stream monday --progress-fd 3

With several SRC, or if DEST ends with /, fullpipe appends the name of each source to DEST;
otherwise DEST is the new name. The target never depends on which files already exist, so the same
command continues an interrupted copy. It skips files whose size and modification time match.

With -, fullpipe copies standard input to the file DEST. It keeps the data until the data is durable
at the relay; the producer waits while --memory is full. Without --stream, each command starts the
file from the beginning. With --stream, the first line on --progress-fd is the offset at which the
producer has to resume.

For HOST:PATH, fullpipe starts itself on the other host over ssh, as scp does. The data goes over
separate TLS connections to a free port there, with keys that are made for this copy. relay:// needs
a running relay, and both ends have permanent keys: --peer pins the relay's key, and the relay needs
--allow with the fingerprint that fullpipe relay key prints on this host.

Exit codes:
  0  done
  1  a file cannot be read or written; the relay keeps the data that is durable there
  2  wrong usage
  3  the relay is unreachable, or disconnects
  4  one end rejects the key of the other
  130  interrupted; the hint contains the command that continues the copy";

#[derive(Debug, ClapArgs)]
#[command(after_help = COPY_EXAMPLE)]
pub(crate) struct CopyArgs {
    /// Files and folders: PATH of this host, HOST:PATH, relay://HOST[:PORT]/PATH, or - for standard input
    #[arg(required = true, value_name = "SRC")]
    pub(crate) sources: Vec<OsString>,

    /// Target: HOST:PATH over ssh, relay://HOST[:PORT]/PATH on a running relay; or PATH, or - for standard
    /// output, if SRC is on another host
    #[arg(value_name = "DEST")]
    pub(crate) target: OsString,

    /// Number of connections, 1 to 16; with a range, or auto for 1..16, fullpipe starts with the smallest
    /// number, or with up to four for a short copy over a long path, and adds connections while each one is
    /// limited by its own window, buffer or rate cap
    #[arg(long, value_name = "auto|N|MIN..MAX", default_value = "auto")]
    pub(crate) connections: String,

    /// Rate of the slowest link on the path, for example 500mbit; auto then starts with as many connections as
    /// fill that link with the buffers of both hosts, and fullpipe prints a forecast with the result
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<Rate>,

    /// Packet loss probability of the path for the forecast, for example 20ppm [default: 0]
    #[arg(long, value_name = "SHARE", requires = "link")]
    pub(crate) loss: Option<Probability>,

    /// Print a forecast for each number of connections, and copy nothing; one connection to the other host
    /// measures the RTT, and reports the buffers of that host
    #[arg(long, requires = "link")]
    pub(crate) plan: bool,

    /// Limit the total rate of all connections, for example 100mbit; at least 100kbit
    #[arg(long, value_name = "RATE")]
    pub(crate) limit: Option<Rate>,

    /// Congestion control of the connections at both ends, for example bbr
    #[arg(long, value_name = "NAME")]
    pub(crate) cc: Option<String>,

    /// Keep trying to reconnect for this time after the relay is lost; with 0s, end the copy at once
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub(crate) retry: Duration,

    /// Maximum memory. For files: the memory of this process and its sockets, at least 32MiB. For a pipe: the
    /// amount of data that is not yet durable at the relay, 4MiB to 4GiB in memory, or up to 4TiB on the disk with
    /// --spool [default: no limit for files, 64MiB for a pipe]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,

    /// Name of the piped stream; a later command with the same name and DEST continues the stream
    #[arg(long, value_name = "NAME")]
    pub(crate) stream: Option<String>,

    /// Keep piped data in a file in DIR instead of in memory; data counts as accepted once it is synced to
    /// that file
    #[arg(long, value_name = "DIR", requires = "stream")]
    pub(crate) spool: Option<PathBuf>,

    /// Write the accepted offset of a pipe, in bytes, to this file descriptor: one line at the start, and one
    /// whenever the offset grows
    #[arg(long, value_name = "FD")]
    pub(crate) progress_fd: Option<u32>,

    /// Fingerprint of the relay's key, for relay://
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) peer: Option<String>,

    /// Compare the contents of files whose size and modification time match, and read written files back from
    /// the disk
    #[arg(long)]
    pub(crate) verify: bool,

    /// File with the key of this host; created if it does not exist [default: ~/.config/fullpipe/relay.key]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

const RELAY_EXAMPLE: &str = "\
Examples:
  fullpipe relay key
  fullpipe relay serve --root /srv/in --allow sha256:...

Exit codes:
  0  done
  1  the key, the folder or the address cannot be used
  2  wrong usage
  4  other users may read the key";

#[derive(Debug, ClapArgs)]
#[command(after_help = RELAY_EXAMPLE)]
pub(crate) struct RelayArgs {
    #[command(subcommand)]
    pub(crate) action: RelayAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RelayAction {
    /// Receive files from fullpipe copy, and send files to it
    Serve(RelayServeArgs),
    /// Serve one copy; fullpipe copy starts this command over ssh
    #[command(hide = true)]
    Once,
    /// Print the fingerprint of this host's key, and create the key if there is none
    Key(RelayKeyArgs),
}

const SERVE_EXAMPLE: &str = "\
Examples:
  fullpipe relay serve --root /srv/in --allow sha256:...
  fullpipe relay serve --root /srv/in --allow /etc/fullpipe/clients

A file for --allow lists one client per line: a fingerprint, optionally followed by rights.
root=FOLDER gives the client a separate folder, limit=RATE limits the client's rate in each
direction, and read-only or write-only permits only one direction. # begins a comment.

The relay runs until it is stopped; clients continue their copies when it runs again. Unfinished
files are next to their targets, in .fullpipe-*.partial.

Exit codes:
  1  the key, the folder or the address cannot be used
  2  wrong usage
  4  other users may read the key";

#[derive(Debug, ClapArgs)]
#[command(after_help = SERVE_EXAMPLE)]
pub(crate) struct RelayServeArgs {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:9581")]
    pub(crate) listen: SocketAddr,

    /// Folder that clients copy to and from; they cannot reach files outside it
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,

    /// File with the key of this host; created if it does not exist [default: ~/.config/fullpipe/relay.key]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,

    /// Client to accept: a fingerprint, or a file with fingerprints and rights; repeatable
    #[arg(long, value_name = "FINGERPRINT|FILE", required = true)]
    pub(crate) allow: Vec<String>,
}

const KEY_EXAMPLE: &str = "\
Example:
  fullpipe relay key

Exit codes:
  0  done
  1  the key cannot be read or created
  2  wrong usage
  4  other users may read the key";

#[derive(Debug, ClapArgs)]
#[command(after_help = KEY_EXAMPLE)]
pub(crate) struct RelayKeyArgs {
    /// File with the key [default: ~/.config/fullpipe/relay.key]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}
