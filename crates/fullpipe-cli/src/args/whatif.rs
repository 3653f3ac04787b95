//! Command-line arguments of `fullpipe whatif`.

use std::str::FromStr;

use clap::Args as ClapArgs;
use fullpipe::FlowRange;
use fullpipe::flow_counts::ParseFlowRangeError;
use fullpipe::tcp::buffers::KernelVersion;
use fullpipe::tcp::cc::Algorithm;
use fullpipe::units::{Bytes, Duration, Probability, Rate};

use super::{DemandArgs, OutputArgs, ProveArgs};

const WHATIF_EXAMPLE: &str = "\
Examples:
  fullpipe whatif --link 1gbit --rtt 210ms --loss 20ppm --buffers 4MiB
  fullpipe whatif --link 100mbit --rtt 40ms --buffers 128KiB --prove
  fullpipe whatif --link 500mbit --rtt 210ms --flows 1..16

Exit codes:
  0  done
  1  implausible values for the path, or no kernel for --prove
  2  wrong usage
  4  missing permission to trace processes (--prove)";

/// Number of parallel flows, or a range of such numbers to simulate one by one.
#[derive(Clone, Debug)]
pub(crate) enum Flows {
    Number(u64),
    Range(FlowRange),
}

impl FromStr for Flows {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains("..") {
            return text.parse().map(Self::Range).map_err(|error: ParseFlowRangeError| error.to_string());
        }
        let wrong = |_| format!("'{text}' is neither a number nor a range such as 1..16");
        text.parse().map(Self::Number).map_err(wrong)
    }
}

#[derive(Debug, ClapArgs)]
#[command(after_help = WHATIF_EXAMPLE)]
pub(crate) struct WhatifArgs {
    /// Rate of the link, for example 1gbit
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Rate,

    /// Round-trip time of the idle path, for example 210ms
    #[arg(long, value_name = "TIME")]
    pub(crate) rtt: Duration,

    /// Packet loss probability, for example 20ppm or 1.5%
    #[arg(long, value_name = "SHARE", default_value = "0")]
    pub(crate) loss: Probability,

    /// Set the number of parallel flows, 1 to 1000; with a range within 1 to 64, for example 1..16, print a
    /// table of the rates for each number instead of the ladder [default: 1]
    #[arg(long, value_name = "NUMBER|MIN..MAX")]
    pub(crate) flows: Option<Flows>,

    /// Set the payload of a full segment, for example 1448B or 8948B [default: 1448B]
    #[arg(long, value_name = "SIZE")]
    pub(crate) mss: Option<Bytes>,

    /// Set the capacity of the queue at the bottleneck, for example 1MiB [default: 1 BDP]
    #[arg(long, value_name = "SIZE")]
    pub(crate) queue: Option<Bytes>,

    /// Cap each flow at a rate below the link rate, for example 100mbit [default: no cap]
    #[arg(long, value_name = "RATE")]
    pub(crate) cap: Option<Rate>,

    /// Set both maximum buffer sizes, tcp_wmem[2] of the sender and tcp_rmem[2] of the receiver, for example
    /// 4MiB [default: the kernel's]
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["sndbuf", "rcvbuf"])]
    pub(crate) buffers: Option<Bytes>,

    /// Set the sender's maximum buffer size, tcp_wmem[2], for example 4MiB [default: the kernel's]
    #[arg(long, value_name = "SIZE")]
    pub(crate) sndbuf: Option<Bytes>,

    /// Set the receiver's maximum buffer size, tcp_rmem[2], for example 6MiB [default: the kernel's]
    #[arg(long, value_name = "SIZE")]
    pub(crate) rcvbuf: Option<Bytes>,

    /// Kernel version of both hosts, for example 6.8
    /// [default: 6.8, or the version of the kernel with --prove]
    #[arg(long, value_name = "VERSION")]
    pub(crate) kernel: Option<KernelVersion>,

    /// Congestion control of the sender: reno, bic, cubic, vegas, bbr, bbr3 or surge
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) cc: Algorithm,

    #[command(flatten)]
    pub(crate) demand: DemandArgs,

    #[command(flatten)]
    pub(crate) prove: ProveArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
