use super::*;

#[test]
fn infos_and_their_nics_come_back_as_they_were() {
    let mut info = Info::default();
    let text = |text: &str| Some(text.to_owned());
    info.fabric.prov_name = text("tcp");
    info.fabric.name = text("cut\0here");
    info.domain.auth_key = vec![1, 2, 3];
    let nic = Nic {
        name: text("eth0"),
        driver: text("driver"),
        address: text("00:11"),
        pci: Some((1, 2, 3, 4)),
        mtu: 1500,
        speed: 1_000_000,
        state: LinkState::Up,
        ..Nic::default()
    };
    info.nic = Some(nic.clone());
    let list = list_to_c(&[info.clone(), info]).unwrap();
    // SAFETY: the list was made above.
    let copy = unsafe { duplicate(list.as_ptr()) }.unwrap();
    for (infos, count) in [(&list, 2), (&copy, 1)] {
        let mut next = infos.as_ptr();
        let mut seen = 0;
        // SAFETY: a list, or null at its end.
        while let Some(node) = unsafe { next.as_ref() } {
            // SAFETY: the node has all its parts.
            let back = unsafe { super::super::hints(node) };
            let fabric = back.fabric.unwrap();
            assert_eq!((fabric.name.as_deref(), fabric.prov_name.as_deref()), (Some("cut"), Some("tcp")));
            assert_eq!(back.domain.unwrap().auth_key, [1, 2, 3]);
            // SAFETY: the nic has all its parts.
            assert_eq!(unsafe { super::nic(node.nic) }.as_ref(), Some(&nic));
            seen += 1;
            next = node.next;
        }
        assert_eq!(seen, count);
    }
}
