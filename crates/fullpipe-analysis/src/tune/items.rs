//! Items of a plan, proposed by the remedies in the catalogue for the host.

use fullpipe_lab::campaign::RunPanicked;

use super::inputs::PlanInputs;
use super::item::Item;
use super::plan::SkippedItem;
use crate::advice;
use crate::remedy::{Cost, Decision, HostCase, Mechanism, Part, Proposal, Remedy, Scope, catalogue};

/// Items, omissions and notes of a plan.
pub(super) struct Items {
    pub(super) items: Vec<Item>,
    /// Settings that are left unchanged.
    pub(super) left: Vec<SkippedItem>,
    /// Notes for the reader.
    pub(super) notes: Vec<String>,
}

/// Collects the decisions of all parts of all remedies for this host.
///
/// # Errors
/// Returns an error for a defect of the simulator.
pub(super) fn items(host: &HostCase<'_>, inputs: &PlanInputs) -> Result<Items, RunPanicked> {
    let (mut proposals, mut left) = (Vec::new(), Vec::new());
    for (remedy, part) in catalogue::parts() {
        let Some(plan) = part.plan else { continue };
        match plan(host)? {
            Decision::Propose(proposal) => proposals.push(PlannedItem::new(remedy, part, *proposal)),
            Decision::Leave(why) => left.push(SkippedItem { what: part.what, why }),
            Decision::Skip => {}
        }
    }
    if let Some(what) = &inputs.report.out_of_reach {
        let why = format!("no setting of a host changes the limit in the report: {what}");
        left.extend(proposals.drain(..).map(|one| SkippedItem { what: one.item.what, why: why.clone() }));
    }
    // The items of this host come first, required before optional items; each group is sorted by scope,
    // narrowest first.
    let scope = |item: &Item| item.applied().map_or(Scope::System, |way| way.command.scope);
    proposals.sort_by_key(|PlannedItem { item, .. }| (!item.here, item.optional, scope(item)));
    let notes = notes(host, inputs, &proposals);
    let items = proposals.into_iter().map(|one| one.item).collect();
    Ok(Items { items, left, notes })
}

/// An item with the facts needed for the notes.
struct PlannedItem {
    item: Item,
    cost: Cost,
    until_then: Option<String>,
}

impl PlannedItem {
    fn new(remedy: &Remedy, part: &Part, proposal: Proposal) -> Self {
        let Proposal { host, here, present, new, why, gain, cost, ways, until_then } = proposal;
        let optional = remedy.is_on_request();
        let item = Item {
            what: part.what,
            host,
            here,
            optional,
            present,
            new,
            why,
            gain,
            cost: cost.to_string(),
            ways,
        };
        Self { item, cost, until_then }
    }
}

fn notes(host: &HostCase<'_>, inputs: &PlanInputs, proposals: &[PlannedItem]) -> Vec<String> {
    let of_the_other = proposals.iter().filter(|one| !one.item.here && !one.item.optional);
    let mut notes: Vec<String> = of_the_other.filter_map(|one| one.until_then.clone()).collect();
    let mut ways = proposals.iter().flat_map(|one| &one.item.ways);
    if inputs.to.is_some_and(|to| to.is_ipv6())
        && ways.any(|way| way.command.sets.is_some_and(Mechanism::is_ipv4_setting))
    {
        notes.push("the settings net.ipv4.tcp_* apply to TCP over IPv6 too".into());
    }
    if proposals.iter().any(|one| matches!(one.cost, Cost::Memory(_))) {
        let (send, receive) = host.trials.buffers(host.reached);
        notes.push(advice::memory_note(send.max(receive), Some(&host.local.settings)));
        notes.push(
            "net.core.rmem_max and wmem_max stay unchanged, because they limit SO_RCVBUF and SO_SNDBUF, but \
             not autotuned buffers"
                .into(),
        );
    }
    notes
}
