-- Hold what memories say until the transaction ends: whoever changes one takes its vectors away first and must wait.
select m.id from memories m where m.tenant_id = :tenant and m.id = any(cast(:ids as uuid[])) order by m.id for share
