//! What is to be reached: the path, this host's part in it, and what is known of the other.

use std::fmt;
use std::net::IpAddr;

use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_units::{Bytes, Duration, Probability, Rate};
use serde_json::{Value, json};

use super::item::What;
use crate::advice::Host;
use crate::input::InputError;

/// This host's part in the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Data comes from it.
    #[default]
    Sender,
    /// Data goes to it.
    Receiver,
    /// Both.
    Both,
}

impl Role {
    /// Whether this host is that end.
    pub const fn is(self, host: Host) -> bool {
        matches!(
            (self, host),
            (Self::Both, _) | (Self::Sender, Host::Sender) | (Self::Receiver, Host::Receiver)
        )
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sender => "the sender",
            Self::Receiver => "the receiver",
            Self::Both => "sender and receiver",
        })
    }
}

/// What is to be reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Aim {
    /// Rate of the line.
    pub link: Rate,
    /// Round-trip time of the idle path.
    pub rtt: Duration,
    /// Share of the packets that is lost.
    pub loss: Probability,
    /// Flows at a time, over which the host's memory is divided.
    pub flows: u64,
    /// This host's part.
    pub role: Role,
    /// The peer, where the plan is for connections to one.
    pub to: Option<IpAddr>,
    /// Optional items to apply.
    pub with: Vec<What>,
    /// The other host.
    pub peer: Peer,
    /// What a report says beside.
    pub stated: Stated,
}

/// What is known of the other host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peer {
    /// The largest buffer of its end of the transfer.
    pub buffer: Option<Bytes>,
    /// Its congestion control, where it is the sender.
    pub congestion_control: Option<String>,
    /// Its kernel.
    pub kernel: Option<KernelVersion>,
}

/// What a report of `fullpipe diagnose` says of the path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stated {
    /// Rate of the line.
    pub link: Option<Rate>,
    /// Round-trip time.
    pub rtt: Option<Duration>,
    /// Share of the packets that is lost.
    pub loss: Option<Probability>,
    /// The measured rate.
    pub measured: Option<Rate>,
    /// What holds it where no setting of a host lifts that, as a noun.
    pub out_of_reach: Option<String>,
    /// Parallel streams.
    pub streams: Option<u64>,
    /// This host's part, if the measurement was made here.
    pub role: Option<Role>,
    /// The buffer of each host: sender, receiver.
    pub buffers: [Option<Bytes>; 2],
    /// The kernel of each host: sender, receiver.
    pub kernels: [Option<KernelVersion>; 2],
    /// The sender's congestion control.
    pub congestion_control: Option<String>,
}

/// What no setting of a host lifts.
const OUT_OF_REACH: [&str; 4] = ["app", "receiver_app", "pacing", "policer"];

impl Stated {
    /// Reads a document of `fullpipe diagnose --json`, or the diagnosis in one of `fullpipe iperf3 -J` or `--json-stream`; of a test in both
    /// directions that of the one from the client.
    ///
    /// # Errors
    /// It is none, or has no diagnosis.
    pub fn parse(text: &str) -> Result<Self, InputError> {
        let refuse = |message: String| {
            let hint = "give the output of fullpipe diagnose ... --json, or of fullpipe iperf3 -c ... -J";
            InputError::new(message, hint)
        };
        let whole: Value = match serde_json::from_str(text) {
            Ok(whole) => whole,
            // Events, of which the last is the end.
            Err(error) => text
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok())
                .rfind(|event| event["event"] == "end")
                .map(|event| json!({ "end": event["data"] }))
                .ok_or_else(|| refuse(format!("it is no JSON: {error}")))?,
        };
        let told = &whole["end"]["fullpipe"];
        if let Some(why) = told["no_diagnosis"].as_str() {
            let hint = "measure again as it says, or give --link and --rtt to fullpipe tune instead";
            return Err(InputError::new(format!("the test has no diagnosis: {why}"), hint));
        }
        if whole["end"].is_object() && told["diagnosis"].is_null() {
            return Err(InputError::new(
                "the test has no diagnosis",
                "diagnose it first: fullpipe diagnose FILE --json | fullpipe tune --from -",
            ));
        }
        let document = if told["diagnosis"].is_object() { &told["diagnosis"] } else { &whole };
        let schema = document["schema"].as_str().unwrap_or_default();
        if schema != crate::json::DIAGNOSIS {
            return Err(refuse(format!("it is no report of diagnose: its schema is '{schema}'")));
        }
        let path = &document["path"];
        let known = path["rtt_source"].as_str() != Some("unknown");
        let end = |name: &str| &document["hosts"][name];
        let first = &document["findings"][0];
        let limit = first["limit"].as_str().unwrap_or_default();
        let text_of = |value: &Value| value.as_str().map(str::to_owned);
        let udp = document["input"]["protocol"].as_str() == Some("udp");
        let ends = ["sender", "receiver"].map(end);
        Ok(Self {
            link: path["link_bps"].as_u64().map(Rate::from_bps),
            rtt: path["rtt_ms"].as_f64().filter(|_| known).map(|ms| Duration::from_secs_f64(ms / 1e3)),
            loss: path["loss"]["rate"].as_f64().map(Probability::from_f64),
            measured: path["mean_bps"].as_u64().map(Rate::from_bps),
            out_of_reach: OUT_OF_REACH.contains(&limit).then(|| text_of(&first["what"])).flatten(),
            streams: document["input"]["streams"].as_u64(),
            role: ends[1]["made_the_log"]
                .as_bool()
                .map(|receiver| if receiver { Role::Receiver } else { Role::Sender }),
            // Those of a UDP test are what TCP is taken to have.
            buffers: ends.map(|end| end["buffer_bytes"].as_u64().filter(|_| !udp).map(Bytes::new)),
            kernels: ends.map(|end| end["kernel"].as_str().and_then(|kernel| kernel.parse().ok())),
            congestion_control: text_of(&path["congestion_control"]).filter(|_| !udp),
        })
    }
}
