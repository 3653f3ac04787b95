//! The user of the worker, from `/etc/passwd`.

use std::fs;

use fullpipe_linux::Error;

use crate::{refused, system};

/// Users that exist on most hosts, in order of preference.
const USERS: [&str; 2] = ["fullpipe", "nobody"];

/// Returns the user ID and the group ID of the worker's user.
pub(crate) fn user(name: Option<&str>) -> Result<(u32, u32), Error> {
    let users = fs::read_to_string("/etc/passwd").map_err(|error| system("read /etc/passwd", error))?;
    let found = match name {
        Some(name) => ids(&users, name),
        None => USERS.iter().find_map(|name| ids(&users, name)),
    };
    let name = name.unwrap_or(USERS[0]);
    let (user, group) = found.ok_or_else(|| {
        refused(
            format!("there is no user {name}"),
            "create this user, or set user = \"NAME\" in the configuration",
        )
    })?;
    if user == 0 {
        return Err(refused(format!("the user {name} is root"), "choose a user without privileges"));
    }
    Ok((user, group))
}

/// Returns the user ID and the group ID of a user from the text of `/etc/passwd`.
fn ids(users: &str, name: &str) -> Option<(u32, u32)> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let mut number = |skip: usize| fields.nth(skip)?.parse().ok();
        Some((number(1)?, number(0)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let users =
            "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65533:nobody:/:/usr/sbin/nologin\nbroken\n";
        assert_eq!(ids(users, "nobody"), Some((65_534, 65_533)));
        assert_eq!(ids(users, "root"), Some((0, 0)));
        assert_eq!(ids(users, "nob"), None);
        assert_eq!(ids(users, "broken"), None);
        let root = user(Some("root")).expect_err("root is refused");
        assert!(root.message.contains("root"), "{root}");
    }
}
