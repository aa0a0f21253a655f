//! mount(8), umount(8) and fstab, with the program installed as their helper.

use std::fs;
use std::path::Path;

use crate::common::wait::{PATIENCE, wait_until};
use crate::contained::{Place, Who, contained, lives, nothing, text};

/// Installs the helper where mount(8) looks for it, and a table of filesystems, in this mount namespace alone.
fn install(place: &Place, line: &str) {
    fs::write(place.base().join("fstab"), line).expect("a table of filesystems");
    place.sh_ok(
        "mkdir $B/upper $B/inner && mount -t overlay -o lowerdir=/usr/sbin,upperdir=$B/upper,workdir=$B/inner none /usr/sbin &&
         ln -s $U /usr/sbin/mount.fuse.unclobber && { test -e /sbin/mount.fuse.unclobber || mount --bind /usr/sbin /sbin; } &&
         mount --bind $B/fstab /etc/fstab",
    );
}

fn mounted(point: &Path) -> bool {
    let all = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    all.lines()
        .any(|line| line.contains(&format!(" {} ", point.display())) && line.contains("fuse.unclobber"))
}

#[test]
fn mount_by_type_and_by_fstab() {
    contained("mounting::mount_by_type_and_by_fstab", Who::Root, nothing, |place| {
        fs::write(place.at("f"), "one").expect("a file of the backing tree");
        let (point, work) = (place.point("m"), place.work());
        let line = format!(
            "{} {} fuse.unclobber noauto,owner=A,unseen=allow,fsname=tree,x-systemd.automount 0 0\n",
            work.display(),
            point.display()
        );
        install(place, &line);
        let at = point.display();
        place.sh_ok(&format!("mount -t fuse.unclobber -o mode=observe $W {at}"));
        assert!(mounted(&point), "by its type");
        assert!(place.unclobber(&["status"]).out.contains("observe"));
        fs::write(point.join("f"), "two").expect("observing refuses nothing");
        place.sh_ok(&format!("umount {at}"));
        assert!(!mounted(&point));
        place.sh_ok(&format!("mount {at} && findmnt -no SOURCE {at} | grep -x tree"));
        assert!(mounted(&point), "by its line in fstab");
        assert!(place.unclobber(&["status"]).out.contains("owner A"));
        assert_eq!(text(point.join("f")), "two");
        place.sh_ok(&format!("umount {at} && mount -a -O owner=A -t fuse.unclobber"));
        assert!(!mounted(&point), "noauto is heeded");
        let wrong = place.sh(&format!("mount -t fuse.unclobber -o cheese $W {at}"));
        assert!(wrong.code != 0 && wrong.err.contains("cheese"), "{wrong:?}");
    });
}

#[test]
fn a_busy_mount_stays_until_it_is_left_or_taken_away_lazily() {
    let name = "mounting::a_busy_mount_stays_until_it_is_left_or_taken_away_lazily";
    contained(name, Who::Root, nothing, |place| {
        fs::write(place.at("f"), "one").expect("a file of the backing tree");
        let point = place.point("m");
        let at = point.display().to_string();
        place.sh_ok(&format!("$U mount $W {at} --owner A --linger 0"));
        let guard = place.guards()[0];
        let held = fs::File::open(point.join("f")).expect("a file on the mount");
        let busy = place.unclobber(&["umount", &at]);
        let user = format!("process {}", std::process::id());
        assert!(
            busy.code == 1 && busy.err.contains(&user) && busy.err.contains("--lazy"),
            "{busy:?}"
        );
        assert!(mounted(&point), "it is still there");
        assert_eq!(text(point.join("f")), "one", "and works");
        let lazy = place.unclobber(&["umount", "--lazy", &at]);
        assert_eq!(lazy.code, 0, "{lazy:?}");
        assert!(!mounted(&point), "it is gone for new users");
        assert_eq!(
            std::io::read_to_string(&held).expect("whoever has it open goes on"),
            "one"
        );
        assert!(lives(guard), "the guard serves its last user");
        drop(held);
        assert!(wait_until(PATIENCE, || !lives(guard)), "and ends after it");
    });
}
