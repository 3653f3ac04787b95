//! Tuning plan for a host, and the state of the host, as text.

use fullpipe_units::{Bytes, Duration, Probability, Rate};

use super::Look;
use super::page::{Page, RATE_WIDTH};
use crate::tune::{Item, Plan, Show};

/// Renders the whole plan as text with the width of `look`, except for commands to copy. The first line
/// states the gain.
pub fn render_plan(plan: &Plan, look: impl Into<Look>) -> String {
    let mut page = Page::new(look.into());
    page.headline(&headline(plan));
    page.paragraph(0, &question(plan));
    let here: Vec<&Item> = plan.items.iter().filter(|item| item.here && !item.optional).collect();
    items(&mut page, "On this host", &here);
    let there: Vec<&Item> = plan.items.iter().filter(|item| !item.here).collect();
    items(&mut page, "On the other host: run fullpipe tune there, or these commands", &there);
    let optional: Vec<&Item> = plan.items.iter().filter(|item| item.here && item.optional).collect();
    items(&mut page, "For some applications: applied only with --with NAME", &optional);
    let left: Vec<String> = plan.left.iter().map(|left| format!("{}: {}", left.what, left.why)).collect();
    page.list("Not changed", &left);
    page.ladder(&plan.ladder, Some(plan.link));
    page.list("Assumed", &plan.assumptions);
    page.list("Notes", &plan.notes);
    page.into_text()
}

fn headline(plan: &Plan) -> String {
    let changes = plan.applied().count();
    let Some(present) = plan.present else { return format!("{changes} changes to this host") };
    let planned = plan.planned.unwrap_or(present);
    if plan.items.iter().all(|item| item.optional) {
        return format!("Nothing to change: the rate is already {present} of {} (simulated)", plan.link);
    }
    let other = if plan.items.iter().any(|item| !item.here) { " and the other" } else { "" };
    let many = if changes == 1 { "1 change".into() } else { format!("{changes} changes") };
    format!("{many} to this host{other}: {planned} instead of {present} (simulated)")
}

fn question(plan: &Plan) -> String {
    let mut text = format!("A link of {}, RTT {}", plan.link, Duration::from_secs_f64(plan.rtt_ms / 1e3));
    if plan.loss > 0.0 {
        text += &format!(", loss {}", Probability::from_f64(plan.loss));
    }
    text += &format!(", BDP {}", Bytes::new(plan.bdp_bytes));
    text += &match plan.flows {
        1 => ", one flow".into(),
        flows => format!(", {flows} flows"),
    };
    if let Some(to) = &plan.to {
        text += &format!(" to {to}");
    }
    text += &format!("; this host is {}", plan.role);
    if let Some(kernel) = &plan.kernel {
        text += &format!(", kernel {kernel}");
    }
    if let Some(memory) = plan.memory_bytes {
        text += &format!(", {} of memory", Bytes::new(memory));
    }
    if let Some(measured) = plan.measured {
        text += &format!("; the report measured {measured}");
    }
    text + "."
}

fn items(page: &mut Page, heading: &str, items: &[&Item]) {
    if items.is_empty() {
        return;
    }
    page.heading(heading);
    for item in items {
        let present = item.present.as_ref().map(|present| format!("{present} -> ")).unwrap_or_default();
        page.hanging("  ", &format!("{}: {present}{}", item.what, item.new));
        page.hanging("     why: ", &item.why);
        page.hanging("    gain: ", &item.gain.text);
        page.hanging("    cost: ", &item.cost);
        for way in &item.ways {
            let applied = if way.applied { ", --apply" } else { "" };
            page.line(&format!("    [{}{applied}] {}", way.command.scope, way.command.run));
            page.line(&format!("      undo: {}", way.command.undo));
            if let Some(requires) = &way.command.requires {
                page.hanging("      needs: ", requires);
            }
        }
    }
}

/// Renders the capabilities and settings of a host, as text with the width of `look`.
pub fn render_show(show: &Show, look: impl Into<Look>) -> String {
    let mut page = Page::new(look.into());
    let cc = show.congestion_control.as_deref().unwrap_or("unknown");
    let kernel = show.kernel.as_deref().unwrap_or("of unknown release");
    page.headline(&format!("Kernel {kernel}, new connections use {cc}"));
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            page.hanging(&format!("  {name:<28}"), &value);
        }
    };
    row("congestion controls", show.available.join(" "));
    row("  without privileges", show.allowed.join(" "));
    // `loadable` also lists modules that are already loaded, because their files are in the module directory.
    // Leave these modules out.
    let not_loaded = show.loadable.iter().filter(|name| !show.available.contains(name));
    row("  as modules, not loaded", not_loaded.cloned().collect::<Vec<_>>().join(" "));
    let devices: Vec<String> =
        show.devices.iter().map(|device| format!("{} {}", device.name, device.qdisc)).collect();
    row("queueing disciplines", devices.join(", "));
    row("  of new devices", show.default_qdisc.clone().unwrap_or_default());
    row("memory", show.memory_bytes.map(|bytes| Bytes::new(bytes).to_string()).unwrap_or_default());
    row("memory to window", show.window_rule.clone());
    if let Some(route) = &show.route {
        row("route", route.present.clone());
    }
    for (key, value) in &show.settings {
        let listed =
            key.ends_with("congestion_control") || key.ends_with("osrelease") || key.ends_with("qdisc");
        if !listed {
            row(key.rsplit('.').next().unwrap_or(key), value.clone());
        }
    }
    for limits in &show.limits {
        page.heading(&format!(
            "The rate that each limit allows at {}",
            Duration::from_secs_f64(limits.rtt_ms / 1e3)
        ));
        let mut limit = |rate: Option<Rate>, text: &str| {
            if let Some(rate) = rate {
                page.hanging(&format!("  {:>RATE_WIDTH$}  ", rate.to_string()), text);
            }
        };
        limit(limits.send, "sending: tcp_wmem[2] per RTT");
        limit(limits.receive, "receiving: the window of tcp_rmem[2] per RTT");
        limit(limits.set_send, "sending on a socket that sets SO_SNDBUF: twice net.core.wmem_max");
        limit(limits.set_receive, "receiving on a socket that sets SO_RCVBUF: twice net.core.rmem_max");
        limit(limits.loss, "a loss-based sender at the given loss");
    }
    page.into_text()
}
