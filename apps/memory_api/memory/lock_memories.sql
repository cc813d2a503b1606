-- Hold what memories say until the transaction ends: whoever changes one takes its vectors away first and must wait.
select id from memories where tenant_id = :tenant and id = any(cast(:ids as uuid[])) order by id for share
