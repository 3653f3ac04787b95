//! Reports of the worker to the keeper. With each report, the worker also frees the memory of idle
//! connections, and compares the buffers with the budget.

use std::collections::BTreeMap;
use std::io::Write;

use fullpipe_tcp::SendLimit;
use fullpipe_tcp::memory::MemorySummary;
use fullpipe_tcp::stack::Stack;
use fullpipe_units::{Bytes, Duration, Instant};
use serde::{Deserialize, Serialize};

use super::{Worker, for_payload};
use crate::memory::Pressure;

/// Number of reports between two checks of all connections by the kill switch.
const OBSERVATION_BEATS: u64 = 10;
/// Maximum number of connections whose limits are included in a report.
const SAMPLED: usize = 1_000;

/// Report of the worker to the keeper.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// Number of connections between a client and the server.
    pub connections: usize,
    /// Number of connections that were accepted since the start.
    pub accepted: u64,
    /// Number of connections whose server could not be reached.
    pub unreachable: u64,
    /// Number of connections that ended with a reset.
    pub resets: u64,
    /// State of the server: up, unknown or down.
    pub health: String,
    /// Whether the maximum number of connections or the memory budget is reached. New connections are then
    /// left to the kernel.
    pub full: bool,
    /// Bytes from clients that the server has accepted.
    pub bytes_up: u64,
    /// Bytes from the server that the stack has accepted for the clients.
    pub bytes_down: u64,
    /// Memory of the buffers of all connections, in bytes.
    pub held: u64,
    /// Number of packets from clients.
    pub packets_in: u64,
    /// Number of packets to clients.
    pub packets_out: u64,
    /// Number of SYNs from clients, including retransmitted SYNs.
    pub syns: u64,
    /// Number of packets that were invalid or not addressed to this port.
    pub refused: u64,
    /// Number of ICMP messages about the path MTU that reduced the segment size of a connection.
    pub too_big: u64,
    /// Longest delay of the loop since the last report, in seconds: the time by which it missed a wake-up time that it
    /// had set, because it was busy or waited for a CPU.
    pub loop_delay: f64,
    /// Time in seconds for which each limit has applied to the open connections; at most 1000 connections are
    /// included.
    pub limits: BTreeMap<String, f64>,
    /// State of the path memory; null if there is no path memory.
    pub paths: Option<PathReport>,
}

/// State of the path memory of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathReport {
    /// Number of prefixes in the path memory.
    pub prefixes: usize,
    /// Number of connections that launched more than ten segments.
    pub launches: u64,
    /// Number of connections that launched fewer segments because a budget was used up.
    pub over_budget: u64,
    /// Reason why the kill switch is active; null if larger launches are permitted.
    pub stopped: Option<String>,
}

impl From<MemorySummary> for PathReport {
    fn from(summary: MemorySummary) -> Self {
        let MemorySummary { prefixes, launches, over_budget, tripped } = summary;
        Self { prefixes, launches, over_budget, stopped: tripped.map(|reason| reason.to_string()) }
    }
}

impl Worker {
    /// Samples all connections, and sends a report to the keeper.
    pub(super) fn report(&mut self, now: Instant, stack: &mut Stack) {
        self.held.clear();
        let mut limits = [Duration::ZERO; SendLimit::ALL.len()];
        let [mut up, mut down] = self.carried;
        for (sampled, relayed) in self.relayed.values_mut().enumerate() {
            up += relayed.up.carried();
            down += relayed.down.carried();
            let moved = relayed.up.carried() + relayed.down.carried();
            if moved == relayed.reported {
                // A connection that waits for its next request needs no buffer.
                stack.free_idle_memory(relayed.id);
                relayed.up.free_idle_memory();
                self.pending -= relayed.down.memory() as u64;
                relayed.down.free_idle_memory();
                self.pending += relayed.down.memory() as u64;
            }
            relayed.reported = moved;
            let Some(connection) = stack.connection(relayed.id) else { continue };
            self.held.push(stack.memory_of(relayed.id) + relayed.down.memory() as u64);
            if sampled < SAMPLED {
                let spent = connection.limit_times(now);
                limits.iter_mut().zip(spent).for_each(|(total, spent)| *total += spent);
            }
        }
        let of_relayed: u64 = self.held.iter().sum();
        let other = (stack.memory() + self.pending).saturating_sub(of_relayed);
        self.pressure = Pressure::of(Bytes::new(self.settings.memory), Bytes::new(other), &mut self.held);
        if let Some(level) = self.pressure.level {
            let large = self.relayed.values().filter(|relayed| stack.memory_of(relayed.id) > level.get());
            let large: Vec<_> = large.map(|relayed| relayed.id).collect();
            large.into_iter().for_each(|id| stack.fit_memory(id));
        }
        stack.set_memory_limit(for_payload(self.settings.memory, self.pending));
        // Connections that were held back are queued again, because the level may have risen.
        for (number, relayed) in &mut self.relayed {
            if relayed.held_back && !std::mem::replace(&mut relayed.queued, true) {
                self.again.push(*number);
            }
        }
        // Between 80 % and 90 % of the maximum number of connections, the state does not change, so that the
        // steering does not flap.
        let share = if self.beat.full { 8 } else { 9 };
        let connections = stack.connections() - stack.in_time_wait();
        // For the same reason, memory pressure counts until half of the budget is free.
        let lacks_memory = self.pressure.level.is_some()
            || self.beat.full && 2 * self.pressure.held.get() > self.settings.memory;
        self.beat.full = lacks_memory || 10 * connections >= share * self.settings.connections;
        if self.beats.is_multiple_of(OBSERVATION_BEATS) {
            self.beat.paths = stack.observe_senders(now).map(PathReport::from);
        }
        self.fill(stack, up, down, limits, self.health.state(now).name());
        self.beats += 1;
        self.line.clear();
        if serde_json::to_writer(&mut self.line, &self.beat).is_ok() {
            self.line.push(b'\n');
            // A keeper that does not read its socket misses a report. The keeper ignores a line that was cut
            // short.
            let _ = self.control.write_all(&self.line);
        }
    }

    /// Fills in the fields of a report. The memory of unchanged names is reused.
    fn fill(
        &mut self,
        stack: &Stack,
        up: u64,
        down: u64,
        limits: [Duration; SendLimit::ALL.len()],
        health: &'static str,
    ) {
        let counters = stack.counters();
        let beat = &mut self.beat;
        beat.connections = self.relayed.len();
        if beat.health != health {
            beat.health = health.into();
        }
        beat.loop_delay = std::mem::take(&mut self.delay).as_secs_f64();
        (beat.bytes_up, beat.bytes_down, beat.held) = (up, down, self.pressure.held.get());
        (beat.packets_in, beat.packets_out) = (counters.packets_in, counters.packets_out);
        (beat.syns, beat.refused, beat.too_big) = (counters.syns_in, counters.refused, counters.complaints);
        for (limit, spent) in SendLimit::ALL.into_iter().zip(limits) {
            match beat.limits.get_mut(limit.name()) {
                Some(seconds) => *seconds = spent.as_secs_f64(),
                None => drop(beat.limits.insert(limit.name().to_owned(), spent.as_secs_f64())),
            }
        }
    }
}
