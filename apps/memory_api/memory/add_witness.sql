-- One more run says the same as these.
update memories set witnesses = witnesses + 1 where tenant_id = :tenant and id = any(cast(:ids as uuid[]))
